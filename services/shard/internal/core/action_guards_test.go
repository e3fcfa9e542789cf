package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-19.1, 19.2, 19.8: at most so many starts per cycle, taken from the kinds in turn, so that Bootstraps, which stand
// first, do not starve a Reclaim; the rest is counted and planned again.
func TestActionsPerCycle(t *testing.T) {
	machines := hostsOf(2, "green")
	for i := range 6 {
		machines = append(machines, host(fmt.Sprintf("i%d", i), inventory.Idle, ""))
	}
	w := newWorld(t, func(c *Config) { c.MaxActionsPerCycle = 2 }, machines...)
	w.connect("red")
	w.connect("green")
	w.run(Second)
	w.rollup("green", needs(0, 4))
	w.rollup("red", needs(0, 24))
	started, most := map[int64][]Kind{}, 0
	w.run(Minute)
	for _, r := range w.recorded(RecordStarted) {
		if r.Outcome == "" && r.Detail == "" {
			started[r.Cycle] = append(started[r.Cycle], r.Kind)
			most = max(most, len(started[r.Cycle]))
		}
	}
	if most != 2 {
		t.Errorf("%d starts in one cycle, of 2 that are allowed: %v", most, started)
	}
	if first := started[slices.Min(keysOf(started))]; !slices.Contains(first, KindReclaim) {
		t.Errorf("the first cycle with starts began %v; the reclaim stands behind", first)
	}
	if n := len(w.called(RPCConfigure)); n != 6 {
		t.Errorf("%d machines are configured in the end", n)
	}
	if w.count(MetricDeferred) == 0 {
		t.Error("nothing was counted as deferred")
	}
}

func keysOf[V any](m map[int64]V) (out []int64) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// SHARD-19.9: Creates over the whole shard keep to a rate, in plan order: the row of higher
// priority first, although another was there before it.
func TestProvisionRate(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ProvisionRate = 2 }, slotsOf(8)...)
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(0, 12))
	w.rollup("blue", needs(1000, 12))
	w.run(30 * Second)
	early := len(w.called(RPCCreate))
	w.run(5 * Minute)
	if all := len(w.called(RPCCreate)); early > 3 || all != 6 {
		t.Errorf("%d Creates within half a minute, %d after five more, at 2 a minute", early, all)
	}
	var order []string
	for _, r := range w.recorded(RecordStarted) {
		if r.Kind == KindProvision && r.Outcome == "" && r.Detail == "" {
			order = append(order, r.Cluster)
		}
	}
	if want := []string{"red", "red", "blue", "blue", "blue", "red"}; !slices.Equal(order, want) { // red was there alone for a moment
		t.Errorf("Creates began for %v", order)
	}
}

// SHARD-15.5: the concurrency of a provider is halved when it says that it has too much, or when three outcomes in a row
// are unknown, never below one, and grows again by one for ten accepted, up to the limit.
func TestProviderConcurrency(t *testing.T) {
	p := newProvider("p", 8)
	p.throttle(NotTouched, CodeResourceExhausted)
	if p.limit(0) != 4 {
		t.Errorf("%d after resource_exhausted", p.limit(0))
	}
	p.throttle(Unknown, CodeInternal)
	p.throttle(Unknown, CodeInternal)
	p.throttle(Accepted, CodeOK)
	p.throttle(Unknown, CodeInternal)
	if p.limit(0) != 4 {
		t.Errorf("%d after three unknown outcomes with a success between", p.limit(0))
	}
	for range 2 {
		p.throttle(Unknown, CodeInternal)
	}
	if p.limit(0) != 2 {
		t.Errorf("%d after three in a row", p.limit(0))
	}
	for range 5 {
		p.throttle(NotTouched, CodeResourceExhausted)
	}
	if p.limit(0) != 1 {
		t.Errorf("%d after more of it", p.limit(0))
	}
	for range 1000 {
		p.throttle(Accepted, CodeOK)
	}
	if p.limit(0) != 8 {
		t.Errorf("%d after many successes", p.limit(0))
	}
}

// SHARD-15.6, 15.4: a decision that is blocked does not block those behind it: the bootstraps of a cluster that is at its
// own limit stand first and wait, those of the next cluster go.
func TestBlockedDecisionsLetOthersPass(t *testing.T) {
	var machines []inventory.Machine
	for i := range 8 {
		machines = append(machines, host(fmt.Sprintf("i%d", i), inventory.Idle, ""))
	}
	w := newWorld(t, func(c *Config) { c.ExecutePerCluster = 1 }, machines...)
	w.blob = func(p PullBootstrap) *BootstrapAnswered {
		if p.Cluster == "red" {
			return nil
		}
		return &BootstrapAnswered{Digest: "d", Length: 1}
	}
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(1000, 16))
	w.rollup("blue", needs(0, 16))
	w.run(20 * Second)
	if n := len(sentOf[PullBootstrap](w)); n < 5 || w.state(inventory.Configured) != 4 {
		t.Errorf("%d pulls and %d machines for blue while red, which goes first, waits for its operator", n, w.state(inventory.Configured))
	}
	if n := w.c.bootstraps.clusterCalls("red"); n != 1 {
		t.Errorf("%d calls of red at a time", n)
	}
}

// SHARD-4.4: ids are made of the epoch and counters, and those that operators see are 16 hex digits, another for each attempt.
func TestIdsAreMadeByTheCore(t *testing.T) {
	w := newWorld(t, nil, append(slotsOf(2), hostsOf(2, "green")...)...)
	w.connect("red")
	w.connect("green")
	w.run(Second)
	w.rollup("green", needs(0, 4))
	w.rollup("red", needs(0, 8))
	w.run(Minute)
	hex := func(s string) bool {
		return len(s) == 16 && !slices.ContainsFunc([]byte(s), func(c byte) bool { return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') })
	}
	seen := map[string]bool{}
	for i, c := range w.calls {
		var epoch, n int64
		if k, _ := fmt.Sscanf(c.Op, "shard-0/%d/%d", &epoch, &n); k != 2 || epoch != 7 || n < 1 {
			t.Errorf("call %d is of operation %q", i, c.Op)
		}
	}
	for _, p := range sentOf[PullBootstrap](w) {
		if !hex(p.Request) || seen[p.Request] {
			t.Errorf("a pull is called %q", p.Request)
		}
		seen[p.Request] = true
	}
	for _, r := range sentOf[SendReclaim](w) {
		if !hex(r.Instruction) || seen[r.Instruction] {
			t.Errorf("an instruction is called %q", r.Instruction)
		}
	}
	if len(seen) < 2 || len(sentOf[SendReclaim](w)) == 0 {
		t.Fatal("nothing happened")
	}
}
