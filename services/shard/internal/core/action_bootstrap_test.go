package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Scenario 22, SHARD-15.4, 16.4: an operator that never answers costs nothing but its own time: the machine is Idle
// again, nothing is Failed, one probe at a time, and other clusters are served.
func TestOperatorThatNeverAnswers(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""), host("h2", inventory.Idle, ""), host("h3", inventory.Idle, ""))
	w.blob = func(p PullBootstrap) *BootstrapAnswered {
		if p.Cluster == "red" {
			return nil
		}
		return &BootstrapAnswered{Digest: "d"}
	}
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(31 * Second)
	if n := w.c.ops.open[KindBootstrap]; n > 1 {
		t.Errorf("%d pulls are open after the first timed out", n)
	}
	if w.state(inventory.Failed) != 0 || w.state(inventory.Idle) != 3 {
		t.Errorf("machines were touched")
	}
	w.rollup("blue", needs(0, 4))
	w.run(3 * Second)
	if n := w.state(inventory.Configured); n != 1 {
		t.Errorf("blue has %d machines", n)
	}
	if got := w.outcomes(KindBootstrap)["blob_timeout"]; got != 2 {
		t.Errorf("%d timeouts", got)
	}
}

// Scenario 23, SHARD-16.5, 16.9: an operator that answers every pull with an error keeps the pool intact; the pause
// grows, and its words are in the verdict.
func TestOperatorThatAlwaysFails(t *testing.T) {
	w := newWorld(t, nil, cheap(host("h1", inventory.Idle, "")))
	w.blob = func(PullBootstrap) *BootstrapAnswered { return &BootstrapAnswered{Error: "template: no such key"} }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(10 * Minute)
	n := w.outcomes(KindBootstrap)["blob_error"]
	if n < 4 || n > 8 {
		t.Errorf("%d attempts in 10 minutes; pauses are 10 s doubling", n)
	}
	if len(w.called(RPCConfigure)) != 0 || w.state(inventory.Idle) != 1 {
		t.Error("the provider was touched")
	}
	last := sentOf[SendNeedStatus](w)
	if s := last[len(last)-1]; s.Satisfied || s.Detail != DetailBootstrapError || s.Text != "Boot data could not be rendered: template: no such key." {
		t.Errorf("sent %+v", s)
	}
	w.connect("red") // a new session clears the pause
	w.run(Second)
	if got := w.outcomes(KindBootstrap)["blob_error"]; got <= n {
		t.Error("no new attempt for the new session")
	}
}

// SHARD-16.5, 25.5: the operator's words are shown as well when the machine was bought for the need, waits for its boot data, and so
// counts as being on its way; the cluster gets no word that the need is satisfied. Once a pull succeeds they are gone.
func TestErrorOfAPullForABoughtMachineIsShown(t *testing.T) {
	w := newWorld(t, nil, slotsOf(1)...)
	failing := true
	w.blob = func(PullBootstrap) *BootstrapAnswered {
		if failing {
			return &BootstrapAnswered{Error: "no field Tokn"}
		}
		return &BootstrapAnswered{Digest: "d", Length: 1}
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	for range 30 {
		w.run(10 * Second)
		row := w.view.Needs[0].Rows[0]
		last := sentOf[SendNeedStatus](w)
		if s := last[len(last)-1]; row.Detail() != DetailBootstrapError || s.Satisfied || s.Detail != DetailBootstrapError || !strings.Contains(s.Text, "no field Tokn") {
			t.Fatalf("at %d s the row says %d, %q, and the cluster got %+v", w.mono/Second, row.Detail(), row.Text(), s)
		}
	}
	if n := len(sentOf[SendNeedStatus](w)); n > 60 { // 300 s, once per 5 s at most
		t.Errorf("%d statuses of one row within five minutes", n)
	}
	failing = false
	w.run(15 * Minute)
	last := sentOf[SendNeedStatus](w)
	if s := last[len(last)-1]; !s.Satisfied || w.view.Needs[0].Rows[0].Detail() != 0 {
		t.Errorf("in the end the cluster got %+v", s)
	}
}

// Scenario 24, SHARD-16.7: a blob that expired while it waited is never sent; one more pull, then the attempt ends.
func TestExpiredBlobIsNeverSent(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ExecuteConcurrency = 2; c.ProviderConcurrency = 1 }, host("h1", inventory.Idle, ""), host("h2", inventory.Idle, ""))
	w.tampered = true
	w.blob = func(PullBootstrap) *BootstrapAnswered {
		p := w.c.provider("p")
		p.Inflight++ // somebody else's command takes the only slot just then
		w.after(5*Second, func() { p.Inflight--; w.c.cycle.Redispatch = true; w.step(Tick{}) })
		return &BootstrapAnswered{Digest: "d", TTL: Second}
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(11 * Second)
	if got := w.called(RPCConfigure); len(got) != 0 {
		t.Errorf("Configure went out with an expired blob: %v", got)
	}
	if pulls := len(sentOf[PullBootstrap](w)); pulls < 2 {
		t.Errorf("%d pulls", pulls)
	}
	if got := w.outcomes(KindBootstrap); got["blob_expired"] != 1 {
		t.Errorf("ended %v", got)
	}
}

// Scenario 25, SHARD-14.10: a blob that makes Configure be refused does not burn one machine after the other.
func TestBadBlobTouchesOneMachinePerPause(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""), host("h2", inventory.Idle, ""), host("h3", inventory.Idle, ""), host("h4", inventory.Idle, ""))
	w.reply = func(x Command) (Code, bool) {
		if x.RPC == RPCConfigure {
			return CodeInvalidArgument, false
		}
		return CodeOK, true
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(8 * Second)
	if n := len(w.called(RPCConfigure)); n != 1 {
		t.Errorf("%d Configures in the first pause", n)
	}
}

// Scenario 27, SHARD-14.1: a session that ends between dispatch and answer leaves the machine Idle and without an attribution.
func TestLostSessionRollsBack(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""))
	w.blob = func(PullBootstrap) *BootstrapAnswered { return nil }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	i, _ := w.c.world.Inventory.Find("h1")
	if s := w.c.world.Inventory.State(i); s != inventory.Configuring {
		t.Fatalf("the machine is %v during the pull", s)
	}
	w.disconnect("red")
	if s := w.c.world.Inventory.State(i); s != inventory.Idle {
		t.Errorf("the machine is %v", s)
	}
	if _, ok := w.c.world.Inventory.Attribution(i); ok {
		t.Error("the attribution is still there")
	}
	if got := w.outcomes(KindBootstrap)["session_lost"]; got != 1 {
		t.Errorf("ended %v", w.outcomes(KindBootstrap))
	}
}

// SHARD-16.2: an operator sees Same as In with the chosen value, and the machine by name.
func TestRequirementsAreTranslated(t *testing.T) {
	got := translate([]demand.Requirement{{Key: "rack", Op: demand.Same}, {Key: "gpu", Op: demand.Exists}}, "r7", "m1")
	if len(got) != 3 || got[0].Op != demand.In || got[0].Values[0] != "r7" || got[1].Op != demand.Exists ||
		got[2].Key != "bigfleet.lucy.sh/machine-id" || got[2].Values[0] != "m1" {
		t.Errorf("translated to %+v", got)
	}
}

// SHARD-16.1: late, unknown and foreign answers are counted, and their bytes dropped.
func TestStrayAnswersAreDropped(t *testing.T) {
	w := newWorld(t, nil)
	w.connect("red")
	w.step(BootstrapAnswered{Request: "0123456789abcdef", Cluster: "red", Session: w.session, Digest: "d"})
	if w.count(MetricStrayAnswers, "bootstrap") != 1 {
		t.Error("not counted")
	}
}

// timed notes when commands are sent.
func (w *world) timed() map[RPC][]int64 {
	at := map[RPC][]int64{}
	w.watch = func(effects []Effect) {
		for _, x := range effects {
			if x, is := x.(Command); is {
				at[x.RPC] = append(at[x.RPC], w.mono)
			}
		}
	}
	return at
}

// SHARD-14.9: a machine that could not be configured is not bought again before it may be configured again: what is bought is configured
// at once, however often it failed before.
func TestNothingIsBoughtToWait(t *testing.T) {
	w := newWorld(t, nil, slot("m1"))
	w.reply = func(x Command) (Code, bool) {
		if x.RPC == RPCConfigure {
			return CodeInvalidArgument, false
		}
		return CodeOK, true
	}
	at := w.timed()
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(6 * Hour)
	if n := len(at[RPCConfigure]); n < 5 || len(at[RPCDelete]) < 2 {
		t.Fatalf("%d Configures and %d Deletes in six hours", n, len(at[RPCDelete]))
	}
	for _, bought := range at[RPCCreate] {
		if !slices.ContainsFunc(at[RPCConfigure], func(x int64) bool { return x >= bought && x < bought+30*Second }) {
			t.Errorf("bought at %d s and configured later; Creates %v, Configures %v", bought/Second, at[RPCCreate], at[RPCConfigure])
		}
	}
}

// SHARD-16.10: for a template that fails one machine at a time is bought, to try it. Once it is rendered, the others follow.
func TestOneMachineIsBoughtToTryATemplate(t *testing.T) {
	w := newWorld(t, nil, slotsOf(6)...)
	w.dwell = 5 * Second
	failing := true
	w.blob = func(PullBootstrap) *BootstrapAnswered {
		if failing {
			return &BootstrapAnswered{Error: "template: no such key"}
		}
		return &BootstrapAnswered{Digest: "d", Length: 1}
	}
	at := w.timed()
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 24))
	w.run(3 * Hour)
	creates := at[RPCCreate]
	if len(creates) < 8 {
		t.Fatalf("%d Creates in three hours, of which six came before the first failure", len(creates))
	}
	for i := range creates[7:] {
		if gap := creates[7+i] - creates[6+i]; gap < Minute {
			t.Errorf("two machines are bought within %d s for a template that fails", gap/Second)
		}
	}
	failing = false
	w.run(15 * Minute)
	if n := w.state(inventory.Configured); n != 6 {
		t.Errorf("%d of 6 machines serve once the template works", n)
	}
}
