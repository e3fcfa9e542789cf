package reference

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// rooms is how many units of a need have room under each value of its spread key that counts (ENG-13.9).
type rooms map[string]int64

// roomsOf adds up the room that d has on machines of its own and by shares. Values under which its cluster has a matching machine count, too.
func (n *State) roomsOf(d *Need, on []*Machine, shares []*Share) rooms {
	out := rooms{}
	for _, m := range n.Machines {
		there := m.Seen.Bound() && m.Cluster == d.Cluster.Name && !m.excluded || InFlight(m, d.Cluster)
		if v, has := attr(&m.Machine, d.Spread.Key); has && there && n.Match(d, m) {
			out[v] += 0
		}
	}
	for _, m := range on {
		if v, has := attr(&m.Machine, d.Spread.Key); has {
			out.add(v, n.unitsOn(d, m))
		}
	}
	for _, s := range shares {
		out.add(Value(s.on, d.Spread.Key), s.units)
	}
	return out
}

func (r rooms) add(v string, units int64) { r[v] = resource.AddSat(r[v], units) }

// unitsOn is how many units of d a machine has room for. What others have on a victim ends with its drain.
func (n *State) unitsOn(d *Need, m *Machine) int64 {
	if m.goesTo == d {
		return units(n.Yields(d, m), d.MinUnit)
	}
	return units(n.worth(d, m), d.MinUnit)
}

// mayHold is how many units kube-scheduler puts under one value at most: the least room of all and the skew.
func (r rooms) mayHold(s *demand.Spread) int64 {
	low := int64(0)
	if len(r) > 0 && len(r) >= int(s.MinDomains) {
		low = slices.Min(slices.Collect(maps.Values(r)))
	}
	return resource.AddSat(low, int64(s.MaxSkew))
}

// served is how many units run in the end, in whatever order they come.
func (r rooms) served(s *demand.Spread) (sum int64) {
	most := r.mayHold(s)
	for _, u := range r {
		sum = resource.AddSat(sum, min(u, most))
	}
	return sum
}

// servedOn is what the listed machines and shares count for a need with a hard spread.
func (n *State) servedOn(d *Need, on []*Machine, shares []*Share) resource.Vector {
	return d.MinUnit.Times(n.roomsOf(d, on, shares).served(d.Spread))
}

// roomsNow is the room that d has now.
func (n *State) roomsNow(d *Need) rooms { return n.roomsOf(d, n.has(d), d.received) }

// shareable is how many of the units that m offers are of use to d: as few as serve what they all serve, or what it needs.
func (n *State) shareable(d *Need, m *Machine, offered, needs int64) int64 {
	r := n.roomsNow(d)
	gain := func(units int64) int64 {
		more, _ := r.with(d, m, units)
		return more.served(d.Spread) - r.served(d.Spread)
	}
	want := min(gain(offered), needs)
	if want <= 0 { // a value that begins to count may let the others hold less
		return 0
	}
	return smallest(offered, func(x int64) bool { return gain(x) >= want })
}

// with is the room with so many units more on m, and whether more units run then.
func (r rooms) with(d *Need, m *Machine, units int64) (rooms, bool) {
	v, has := attr(&m.Machine, d.Spread.Key)
	if !has {
		return r, false
	}
	more := maps.Clone(r)
	more.add(v, units)
	return more, more.served(d.Spread) > r.served(d.Spread)
}

// roomsWithFree is the room that d has, and values under which a machine is free for it count, too.
func (n *State) roomsWithFree(d *Need) rooms {
	r := n.roomsNow(d)
	for _, m := range n.Machines {
		if v, has := attr(&m.Machine, d.Spread.Key); has && n.free(d, m) {
			r.add(v, 0)
		}
	}
	return r
}

// has lists the machines that count for d, promised ones included.
func (n *State) has(d *Need) []*Machine {
	return append(slices.DeleteFunc(slices.Clone(d.claims), func(m *Machine) bool { return m.kept }), d.promised...)
}

// raised is the room if each value that grows has at least so much.
func (r rooms) raised(grows map[string][]*Machine, level int64) rooms {
	out := maps.Clone(r)
	for v := range grows {
		out[v] = max(out[v], level)
	}
	return out
}

// level is the least room for all values that grow with which so many units are served, or the most that is of use.
func (r rooms) level(grows map[string][]*Machine, s *demand.Spread, asked int64) int64 {
	most := asked
	rest := maps.Clone(r)
	for v := range grows {
		rest[v] = math.MaxInt64
	}
	most = min(most, rest.mayHold(s))
	return smallest(most, func(x int64) bool { return r.raised(grows, x).served(s) >= asked })
}

// acquireSpread takes free machines, as evenly over the values as units are, until d is covered or nothing helps (ENG-13.9): first so many units as
// it has headroom, where its scheduler would put its Pods (ENG-13.9a).
func (n acquisition) acquireSpread(d *Need) {
	if !n.isShort(d) {
		return
	}
	asked := units(d.Aggregate, d.MinUnit)
	if row := int(d.row); d.row < engine.FoldedRow && d.Cluster.HeadroomOf(row) > 0 {
		if full := d.Cluster.FullOf(row); len(full) > 0 {
			n.takeAll(d, min(asked, resource.AddSat(n.roomsNow(d).served(d.Spread), d.Cluster.HeadroomOf(row))), full)
		}
	}
	n.takeAll(d, asked, nil)
}

// takeAll takes machines under values that are not full.
func (n acquisition) takeAll(d *Need, asked int64, full []string) {
	for took := true; took; {
		idle := n.takeEvenly(d, inventory.Idle, asked, full)
		took = n.takeEvenly(d, inventory.Speculative, asked, full) || idle
	}
}

// takeEvenly raises the room under each value that is not full by machines of one pool.
func (n acquisition) takeEvenly(d *Need, pool inventory.State, asked int64, full []string) bool {
	r := n.roomsWithFree(d)
	grows, here := map[string][]*Machine{}, map[string][]*Machine{}
	for _, m := range n.Machines {
		v, has := attr(&m.Machine, d.Spread.Key)
		if !has || !n.free(d, m) || slices.Contains(full, v) {
			continue
		}
		grows[v] = append(grows[v], m)
		if m.Seen == pool {
			here[v] = append(here[v], m)
		}
	}
	if r.served(d.Spread) >= asked {
		return false
	}
	var taken []*Machine
	for v, want := range n.targets(d, r, grows, here, asked) {
		if want > r[v] {
			taken = append(taken, n.cover(d, d.MinUnit.Times(want-r[v]), here[v])...)
		}
	}
	taken = n.withoutUnneededSpread(d, r, asked, taken)
	for _, m := range taken {
		n.claim(d, m)
		m.acquired = true
	}
	return len(taken) > 0
}

// targets is the room that each value shall have: all one unit less than the level, and as many of them the level as it takes, those
// with the cheapest machine first.
func (n acquisition) targets(d *Need, r rooms, grows, here map[string][]*Machine, asked int64) map[string]int64 {
	level := r.level(grows, d.Spread, asked)
	extra := int64(len(here))
	if r.raised(grows, level).served(d.Spread) >= asked {
		extra = asked - r.raised(grows, level-1).served(d.Spread)
	}
	out := map[string]int64{}
	var next []string
	for v := range here {
		out[v] = level - 1
		if r[v] < level {
			next = append(next, v)
		}
	}
	cheapest := func(v string) *Machine {
		return slices.MinFunc(here[v], func(a, b *Machine) int { return cmp.Or(cmp.Compare(n.Cost(d, a), n.Cost(d, b)), byID(a, b)) })
	}
	slices.SortFunc(next, func(a, b string) int {
		x, y := cheapest(a), cheapest(b)
		return cmp.Or(cmp.Compare(n.Cost(d, x), n.Cost(d, y)), byID(x, y))
	})
	for _, v := range next[:min(int64(len(next)), extra)] {
		out[v] = level
	}
	return out
}

// withoutUnneededSpread leaves out machines without which d is covered, too, dearest first.
func (n acquisition) withoutUnneededSpread(d *Need, r rooms, asked int64, taken []*Machine) []*Machine {
	r = maps.Clone(r)
	for _, m := range taken {
		r.add(Value(m, d.Spread.Key), n.unitsOn(d, m))
	}
	for _, m := range n.dearest(d, taken) {
		less, v := maps.Clone(r), Value(m, d.Spread.Key)
		less[v] -= n.unitsOn(d, m)
		if less.served(d.Spread) >= asked {
			r = less
			taken = slices.DeleteFunc(taken, func(x *Machine) bool { return x == m })
		}
	}
	return taken
}

// layers is how many units of g lie under each value: as evenly as there is room on the listed machines, one more under the values that come
// first (ENG-11.3).
func (n *State) layers(g *Need, list []*Machine) rooms {
	r := rooms{}
	var order []string
	for _, m := range list {
		v := Value(m, g.Spread.Key)
		if !slices.Contains(order, v) {
			order = append(order, v)
		}
		r.add(v, n.unitsOn(g, m))
	}
	held := func(level int64) (sum int64) {
		for _, u := range r {
			sum = resource.AddSat(sum, min(u, level))
		}
		return sum
	}
	all := min(units(g.Aggregate, g.MinUnit), held(math.MaxInt64))
	level := smallest(all, func(x int64) bool { return held(x) >= all })
	out := rooms{}
	more := all - held(level-1)
	for _, v := range order {
		out[v] = min(r[v], max(0, level-1))
		if r[v] >= level && more > 0 {
			out[v]++
			more--
		}
	}
	return out
}

// smallest is the least number up to most for which holds is true, or most. holds stays true once it is.
func smallest(most int64, holds func(x int64) bool) int64 {
	lo := int64(0)
	for lo < most {
		if mid := lo + (most-lo)/2; holds(mid) {
			most = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
