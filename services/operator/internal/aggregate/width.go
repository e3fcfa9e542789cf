package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Limits of a roll-up as a whole: those of a shard's gate (SHARD-10.9, SHARD-32). A shard refuses all demand of the cluster above them, so
// the rows that go beyond are left out here, and their requests get a condition.
const (
	rollupRowsMax     = 50_000
	rollupNamesMax    = 1024      // distinct resources
	rollupCellsMax    = 2_000_000 // rows times distinct resources
	rollupKeysMax     = 1024      // distinct label keys
	rollupTopologyMax = 64        // of these, keys of Same and spread
)

// leftOut says why a row is not in the roll-up.
type leftOut uint8

const (
	leftForNothing leftOut = iota // it is in
	leftForRows
	leftForResources
	leftForKeys
	leftForTopology
	leftForValues
)

// problem is the condition of requests of such a row.
func (l leftOut) problem() *Problem {
	switch l {
	case leftForRows:
		return fatal(ReasonTooManyShapes, "spec", "is beyond the %d different shapes that the cluster may ask for at once; those of the lowest priority are left out", rollupRowsMax)
	case leftForResources:
		return fatal(ReasonTooManyResources, "spec.resources", "names a resource that is not among those of the cluster that most requests use: at most %d, and fewer with more than %d different shapes",
			rollupNamesMax, rollupCellsMax/rollupNamesMax)
	case leftForKeys:
		return fatal(ReasonTooManyKeys, "spec", "selects by a label key that is not among the %d of the cluster that most requests use", rollupKeysMax)
	case leftForTopology:
		return fatal(ReasonTooManyKeys, "spec", "groups or spreads by a topology key that is not among the %d of the cluster that most requests use", rollupTopologyMax)
	case leftForValues:
		return fatal(ReasonTooManyKeys, "spec", "selects by a value of a label key of which the cluster names too many; those that most requests use are kept")
	}
	return nil
}

// width counts requests by what a roll-up may not name too much of.
type width struct{ resources, keys, topology map[string]int }

func newWidth() *width { return &width{map[string]int{}, map[string]int{}, map[string]int{}} }

func (w *width) add(n *pb.CapacityNeed, requests int) {
	for name := range n.MinUnit {
		w.resources[name] += requests
	}
	seen := func(key string, topology bool) {
		if w.keys[key] += requests; topology {
			w.topology[key] += requests
		}
	}
	for _, r := range n.Requirements {
		seen(r.Key, r.Operator == pb.NodeSelectorRequirement_OPERATOR_SAME)
	}
	for _, s := range n.Spread {
		seen(s.TopologyKey, true)
	}
	for _, p := range n.Preferences {
		for _, r := range p.Requirements {
			seen(r.Key, false)
		}
	}
}

// narrow leaves the rows out that make a roll-up wider than a shard takes. Which these are depends on the requests alone, not on their order.
func (a *Aggregate) narrow(needs []*pb.CapacityNeed) []*pb.CapacityNeed {
	all := newWidth()
	for _, n := range needs {
		all.add(n, 1)
	}
	names := min(rollupNamesMax, rollupCellsMax/max(1, min(len(needs), rollupRowsMax)))
	values := mostValues(needs, func(int) int { return 1 })
	fits := values == nil && len(needs) <= rollupRowsMax && len(all.resources) <= names && len(all.keys) <= rollupKeysMax && len(all.topology) <= rollupTopologyMax
	if fits && !a.narrowed {
		return needs
	}
	a.narrowed = !fits
	all = newWidth()
	requests := make([]int, len(a.order))
	for i, r := range a.order {
		for _, part := range r.parts() {
			requests[i] += len(part.members)
		}
		all.add(needs[i], requests[i])
	}
	values = mostValues(needs, func(at int) int { return requests[at] })
	resources, keys, topology := mostUsed(all.resources, names), mostUsed(all.keys, rollupKeysMax), mostUsed(all.topology, rollupTopologyMax)
	out := needs[:0]
	for i, r := range a.order {
		one, why := newWidth(), leftForNothing
		one.add(needs[i], 1)
		switch {
		case beyond(one.resources, resources):
			why = leftForResources
		case beyond(one.topology, topology):
			why = leftForTopology
		case beyond(one.keys, keys):
			why = leftForKeys
		case beyondValues(needs[i], values):
			why = leftForValues
		case len(out) == rollupRowsMax: // they are in the order of priority
			why = leftForRows
		default:
			out = append(out, needs[i])
		}
		if r.left != why {
			r.left = why
			a.turn(r)
		}
	}
	return out
}

// mostUsed is the names that count, nil for all.
func mostUsed(uses map[string]int, most int) map[string]bool {
	if len(uses) <= most {
		return nil
	}
	out := map[string]bool{}
	for _, name := range slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), strings.Compare(a, b))
	})[:most] {
		out[name] = true
	}
	return out
}

func beyond(names map[string]int, counted map[string]bool) bool {
	for name := range names {
		if counted != nil && !counted[name] {
			return true
		}
	}
	return false
}

// turn notes that requests of a row may be counted now, or may not be any more.
func (a *Aggregate) turn(r *row) {
	for _, part := range r.parts() {
		for _, slot := range part.members {
			m := &a.members[slot]
			if a.turned = append(a.turned, KeyOf(m.request)); m.request.Pending() && !m.waiting {
				m.waiting = true
				a.wait(slot)
			}
		}
	}
}

// TakeTurned returns the requests whose problem may be another one since the roll-up before, in no order.
func (a *Aggregate) TakeTurned() []Key {
	out := a.turned
	a.turned = nil
	return out
}
