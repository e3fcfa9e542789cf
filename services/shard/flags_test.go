package shard_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-3.2, 3.3, 31: everything that is wrong with the flags is said at once and before anything is touched; there is no
// provider without a flag, and a zero that would silently be the default is refused.
func TestWrongFlagsAreNamedTogether(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"--provider-addr is empty", "no built-in fake one"}},
		{[]string{"--provider-addr", "nonsense", "--id", "a b", "--reclaim-cap-fraction", "3", "--incremental-reconcile", "maybe", "--silent-after", "-1s",
			"--available-capacity-interval", "-1s", "--metrics-warmup-cycles", "-1", "--epoch-floor", "-7", "--shutdown-grace", "0",
			"--cycle-min-spacing", "0", "--execute-concurrency", "0", "--max-machines", "0", "--release-delay", "-1s", "--drain-deadline-policy", "perhaps", "--session-handover-wait", "6m", "--drain-deadline", "25h"},
			[]string{`--provider-addr "nonsense"`, `--id "a b"`, "--reclaim-cap-fraction 3", `--incremental-reconcile "maybe"`, "--silent-after -1s",
				"--available-capacity-interval -1s", "--metrics-warmup-cycles -1", "--epoch-floor -7", "--shutdown-grace 0", "--cycle-min-spacing 0",
				"--execute-concurrency 0", "--max-machines 0", "--release-delay -1s", `--drain-deadline-policy "perhaps"`, "--session-handover-wait 6m", "--drain-deadline 25h0m0s must be"}},
		{[]string{"--reclaim-cap-fraction", "0.0004"}, []string{"--reclaim-cap-fraction 0.0004 is less than the minimum of 0.001"}}, // it became 0.05
		{[]string{"--reclaim-cap-fraction", "0.0019", "--drain-deadline", "90500ms", "--cluster-penalty-max", "3", "--cluster-spend-max", "1.2345678"}, // became 0.001, 90 s, 2 and 1.234567
			[]string{"--reclaim-cap-fraction 0.0019 is not a whole number of thousandths: give 0.001 or 0.002", "--drain-deadline 1m30.5s must be whole seconds",
				`--cluster-penalty-max "3"`, "give 2 or 4", "--cluster-spend-max 1.2345678 has parts smaller than a millionth of a dollar: give 1.234568"}},
		{[]string{"--provider-addr", "a=h:1", "--provider-addr", "a=h:2"}, []string{`--provider-addr names "a" twice`}},
	} {
		cmd := shard.NewCommand()
		dir := t.TempDir() + "/not-made"
		cmd.SetArgs(append([]string{"--data-dir", dir, "--metrics-addr", "0"}, c.args...))
		err := cmd.ExecuteContext(context.Background())
		if err == nil {
			t.Fatalf("%v started a shard", c.args)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: %q is missing in: %v", c.args, w, err)
			}
		}
	}
}

// SHARD-3.5, 30.3: a session is served and its roll-up accepted while the provider has not answered a single List; the shard
// says once when it is ready.
func TestSessionsAreServedBeforeTheFirstList(t *testing.T) {
	p := NewProvider(slots(2)...)
	var lists atomic.Bool
	p.OnList = func(*pb.MachineList) error {
		if !lists.Load() {
			return connect.NewError(connect.CodeUnavailable, errors.New("not yet"))
		}
		return nil
	}
	s := start(t, p.Serve(t))
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("4", 1))
	Await(t, o, "the roll-up is accepted", func(m *pb.ShardMessage) (bool, bool) {
		return true, m.GetAck().GetRollup().GetDisposition() == pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED
	})
	if strings.Contains(s.Log.String(), "shard is ready") {
		t.Error("ready before a provider was listed")
	}
	lists.Store(true)
	Eventually(t, "the shard says that it is ready", func() bool { return strings.Count(s.Log.String(), "shard is ready") == 1 })
	Eventually(t, "the demand from before is served", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
}
