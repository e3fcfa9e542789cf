package core

import (
	"cmp"
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// step is what every part reads and writes: the moment, what is known of the fleet, the last plan, deadlines, and effects.
type step struct {
	cfg    Config
	policy *engine.Policy
	epoch  int64
	now    int64 // Mono
	wall   int64 // wall clock, written out only
	tick   bool  // this step is a Tick: it may do a part of what is done in parts (SHARD-8.9)

	world     *engine.World
	open      *besideWork // is being made beside the loop; nil: nothing is
	cols      columns
	clusters  clusterSet
	cycle     lastPlan
	timers    timers
	wanted    wantedCheckpoint
	mutations int64 // mutation counter (SHARD-13.5)
	records   int64 // numbers decision records
	eff       []Effect
	probe     func(Phase) // is called as each phase of a cycle begins; nil: not measured
}

// shared is step, and what is under way: calls of providers, open operations, orders of people. Parts that start or end nothing hold step alone.
type shared struct {
	step

	started    bool
	stopping   bool
	superseded string // evidence; empty: not superseded

	providers []*provider
	ops       operations
	ctl       Control
}

func (c *step) emit(e Effect) { c.eff = append(c.eff, e) }

// toWall turns a moment of Mono into the wall clock of this step, for display.
func (c *step) toWall(mono int64) int64 {
	if mono == 0 {
		return 0
	}
	return c.wall - (c.now - mono)
}

// touched gives a machine the next value of the mutation counter, so that facts from before are set aside.
func (c *step) touched(i inventory.Index) {
	c.mutations++
	c.cols.at(i).mutation = c.mutations
}

// frozen reports whether this process must not start anything: it is stopping or superseded.
func (c *shared) frozen() bool { return c.stopping || c.superseded != "" }

// sample counts or measures something for one metric.
func (c *step) sample(m Metric, label string, v int64) {
	c.emit(Sample{Metric: m, Label1: label, Value: v})
}

// phase says which phase of a cycle begins.
func (c *step) phase(p Phase) {
	if c.probe != nil {
		c.probe(p)
	}
}

// nominal is the nominal cycle that a moment lies in.
func (c *step) nominal(mono int64) int64 { return mono / c.cfg.CycleInterval }

// ageCycles is whole nominal cycles since a moment, plus 1 (SHARD-26.2).
func (c *step) ageCycles(since int64) int64 { return (c.now-since)/c.cfg.CycleInterval + 1 }

// trigger asks for a cycle.
func (c *step) trigger(t trigger) {
	c.cycle.pending[t] = true
	c.cycle.wanted = true
}

// readable reports whether each provider has delivered its first List or does not answer. No cycle runs before: planning on half an inventory
// buys again what already exists (SHARD-6.6).
func (c *shared) readable() bool {
	return !slices.ContainsFunc(c.providers, func(p *provider) bool { return !p.Listed && p.Outage != outageUnread })
}

// allListed reports whether each provider has delivered one complete full List in this process.
func (c *shared) allListed() bool {
	for _, p := range c.providers {
		if !p.Listed {
			return false
		}
	}
	return true
}

// provider finds a provider by its name.
func (c *shared) provider(name string) *provider {
	i := slices.IndexFunc(c.providers, func(p *provider) bool { return p.Name == name })
	return c.providers[max(i, 0)]
}

// clipText cuts a text of others to the length that is kept.
func clipText(s string) string {
	if len(s) <= errorTextMax {
		return s
	}
	end := errorTextMax
	for end > 0 && s[end]&0xC0 == 0x80 { // not inside a UTF-8 sequence
		end--
	}
	return s[:end]
}

// sortedInts is sortedKeys for numbers.
func sortedInts[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// sortedKeys is how the core walks a map.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// withheldText names the reason of a mark for readers.
func withheldText(r inventory.WithheldReason) string {
	return [...]string{"", "backoff", "stock_out", "quota", "", "reserved", "not_joined", "elsewhere", "provider_down", "drained"}[r]
}

func abs(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}
