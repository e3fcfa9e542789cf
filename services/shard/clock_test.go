package shard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-4.3: the wall clock of a running shard jumps an hour ahead, back, and an hour back. Nothing is drained, bought twice, given back or
// forgotten by it, a pause lasts as long as it was ordered for, and what changes afterwards is served at once.
func TestClockOfARunningShardJumps(t *testing.T) {
	p := NewProvider(slots(6)...)
	ahead := atomic.Int64{}
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	inVirtualTime(t, p, func(c *shard.Config) {
		c.Clock, c.ReleaseDelay, c.ReleaseDelayEmpty = clock, 61*time.Minute, 61*time.Minute
	}, func(v *virtual) {
		admin := rpc.Stub(v.client, bigfleetv1alpha1connect.NewShardAdminClient)
		configured := pb.MachineState_MACHINE_STATE_CONFIGURED
		red, gone := v.operator("red"), ConnectOver(t, v.ln.DialContext, "gone", AllFeatures...)
		red.Rollup(Need("4", 0), Need("4", 1), Need("4", 2))
		large := Need("1000", 0)
		large.MinUnit = large.AggregateResources // fits nowhere
		gone.Rollup(large)
		wait(time.Minute)
		red.Rollup(Need("4", 0), Need("4", 1)) // one machine is kept for an hour
		wait(2 * time.Minute)
		gone.Close()
		if p.Count(configured) != 3 {
			t.Errorf("%d machines serve before the clock jumps", p.Count(configured))
			return
		}
		calls := len(p.Calls())
		for _, jump := range []time.Duration{time.Hour, 0, -time.Hour} {
			ahead.Store(int64(jump))
			wait(5 * time.Minute)
			s := v.status()
			if at := time.Unix(0, s.GetCycleAtUnixNanos()); clock().Sub(at).Abs() > time.Minute {
				t.Errorf("%s: the last plan was at %s: the clock did not jump", jump, at)
			}
			if p.Count(configured) != 3 || len(p.Calls()) != calls {
				t.Errorf("%s: %d machines serve, and the provider was called: %v", jump, p.Count(configured), p.Calls()[calls:])
			}
			if s.GetSessions() != 1 || s.GetNeeds() != 3 || s.GetUnsatisfiedNeeds() != 1 {
				t.Errorf("%s: %d sessions, %d needs, %d of them unmet: one cluster is connected, and the one that left has an unmet need", jump, s.GetSessions(), s.GetNeeds(), s.GetUnsatisfiedNeeds())
			}
		}

		pause := func() int { return len(v.status().GetPauses()) }
		if _, err := admin.PauseActuation(context.Background(), connect.NewRequest(&pb.PauseActuationRequest{Reason: "test", TtlSeconds: 1200})); err != nil {
			t.Error(err)
		}
		red.Rollup(Need("4", 0), Need("4", 1), Need("4", 2), Need("4", 3))
		ahead.Store(int64(time.Hour))
		wait(15 * time.Minute)
		if pause() != 1 || p.Count(configured) != 3 {
			t.Errorf("%d pauses are in force, and %d machines serve: 5 of 20 minutes are left", pause(), p.Count(configured))
		}
		wait(10 * time.Minute)
		if pause() != 0 || p.Count(configured) != 4 || len(p.Calls("Create")) != 4 {
			t.Errorf("%d pauses are in force after their end; %d machines serve, and %d were bought, of 4", pause(), p.Count(configured), len(p.Calls("Create")))
		}
	})
}
