package shard_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// serveInMemory runs a coordinator on a listener in memory until stop is called.
func serveInMemory(t *testing.T, c *Coordinator, ln *rpc.MemListener) (stop func()) {
	t.Helper()
	s, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), StopTimeout: 10 * time.Millisecond, Services: []rpc.Service{{
		Name: bigfleetv1alpha1connect.CoordinatorName, Limits: rpc.Limits{ReadMaxBytes: 32 << 20, SendMaxBytes: 32 << 20},
		Access: rpc.AllowAll(bigfleetv1alpha1connect.CoordinatorName, rpc.Allow(identity.Shard)),
		New: func(o ...connect.HandlerOption) (string, http.Handler) {
			return bigfleetv1alpha1connect.NewCoordinatorHandler(c, o...)
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, ln) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the coordinator ended with %v", err)
		}
	})
}

// timed is one call at the provider, on the virtual clock.
type timed struct {
	at   time.Duration
	call string
}

// queues reads how much waits in each bounded queue of a shard.
func (v *virtual) queues(longest map[string]float64) {
	v.t.Helper()
	families, err := v.tel.Registry.Gather()
	if err != nil {
		v.t.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "bigfleet_shard_event_queue_depth", "bigfleet_shard_outbox_depth", "bigfleet_shard_action_queue_depth", "bigfleet_shard_coordinator_acks_dropped_total":
		default:
			continue
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			longest[name] = max(longest[name], m.GetGauge().GetValue(), m.GetCounter().GetValue())
		}
	}
}

// tenMinutes runs a shard under a demand that changes all the time, and returns when, on the virtual clock, it called its
// provider for what, the number of cycles, and how long each queue ever was. lose is what happens to the coordinator after
// the first minute.
func tenMinutes(t *testing.T, lose string) (calls []timed, cycles int64, longest map[string]float64) {
	longest = map[string]float64{}
	const slots = 60
	var machines []*pb.Machine
	for i := range slots {
		machines = append(machines, Slot(fmt.Sprintf("m-%02d", i), 1, "4", "16Gi"))
	}
	p := NewProvider(machines...)
	p.Dwell = 2 * time.Second
	var mu sync.Mutex
	var start time.Time
	recording := false
	p.Before = func(c Call) error {
		mu.Lock()
		defer mu.Unlock()
		if recording {
			calls = append(calls, timed{time.Since(start), c.RPC + " " + c.Cluster})
		}
		return nil
	}
	coordinator := NewCoordinator()
	coordinator.Instruct(&pb.CoordinatorInstruction{InstructionId: "view/shard-0/1-1/1", Payload: &pb.CoordinatorInstruction_SetView{
		SetView: &pb.ShardView{Version: &pb.ViewVersion{Term: 1, Index: 1}, Provider: "test", OnlyShard: true, DefaultOwner: true}}})
	lost := make(chan struct{})
	var ln *rpc.MemListener
	var stop func()
	inVirtualTime(t, p, func(c *shard.Config) {
		ln = rpc.NewMemListener("coordinator")
		stop = serveInMemory(t, coordinator, ln)
		c.CoordinatorAddr = "127.0.0.1:1" // an address, so that no resolver is asked
		c.DialCoordinator = func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case <-lost:
			default:
				return ln.DialContext(ctx, network, addr)
			}
			if lose == "hangs" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")}
		}
	}, func(v *virtual) {
		defer stop()
		operators := map[string]*Operator{}
		for _, name := range []string{"red", "green", "blue"} {
			operators[name] = v.operator(name)
		}
		minute := func(n int) {
			for second := range 60 {
				for i, name := range []string{"red", "green", "blue"} {
					if (second+i)%5 == 0 {
						operators[name].Rollup(Need(fmt.Sprint(4*(1+(n*7+second/5+i*3)%15)), int32(100-i)))
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				v.queues(longest)
			}
		}
		minute(0)
		if v.status().GetCoordinator().GetViewIndex() != 1 {
			t.Errorf("%s: the first view is not obeyed: %v", lose, v.status().GetCoordinator())
		}
		if lose != "" {
			close(lost)
			go stop() // it takes a while, and the clock of the load continues
		}
		mu.Lock()
		recording, start = true, time.Now()
		mu.Unlock()
		from := v.status().GetCycle()
		for n := range 10 {
			minute(n + 1)
		}
		mu.Lock()
		recording = false
		mu.Unlock()
		cycles = v.status().GetCycle() - from
		if lose == "" {
			close(lost)
		}
		for name, o := range operators {
			if err := o.Err(); err != nil {
				t.Errorf("%s: session of %s: %v", lose, name, err)
			}
		}
	})
	return calls, cycles, longest
}

// COORD-1.3, 7.13, 9.10, COORD-21.12, 21.35: the whole control plane is away for ten minutes under load, refusing or
// hanging. No queue of the shard grows. On the virtual clock the shard makes the same calls for the same clusters at the same moments as with a
// coordinator that answers, in as many cycles, and no session notices. What runs at one instant of a virtual clock runs in
// any order, so moments may differ by a step of the shard's own pacing, and some calls fall together or apart.
func TestControlPlaneAwayForTenMinutes(t *testing.T) {
	want, cycles, usual := tenMinutes(t, "")
	if len(want) < 100 || cycles < 60 {
		t.Fatalf("%d calls in %d cycles are no load", len(want), cycles)
	}
	if len(usual) < 4 {
		t.Fatalf("queues: %v", usual)
	}
	for _, lose := range []string{"refuses", "hangs"} {
		got, n, longest := tenMinutes(t, lose)
		for queue, length := range longest {
			if length > usual[queue]+8 { // the coordinator's own queue has eight places
				t.Errorf("coordinator %s: %s grew to %v, with one it was %v at most", lose, queue, length, usual[queue])
			}
		}
		if !near(int64(len(got)), int64(len(want))) || !near(n, cycles) {
			t.Errorf("coordinator %s: %d calls in %d cycles, with one there were %d in %d", lose, len(got), n, len(want), cycles)
		}
		var late []time.Duration
		for i := range min(len(got), len(want)) {
			late = append(late, got[i].at-want[i].at)
		}
		slices.Sort(late)
		if median := late[len(late)/2].Abs(); median > 100*time.Millisecond {
			t.Errorf("coordinator %s: calls are %s off in the median", lose, median)
		}
		t.Logf("coordinator %s: %d calls in %d cycles, the median call %s from the one with a coordinator", lose, len(got), n, late[len(late)/2])
	}
	t.Logf("with one: %d calls in %d cycles", len(want), cycles)
}

// near reports whether two counts differ by at most three percent.
func near(a, b int64) bool { return 100*max(a-b, b-a) <= 3*b }
