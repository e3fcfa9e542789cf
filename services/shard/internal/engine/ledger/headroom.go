package ledger

import (
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Headroom is how many units a need gets beyond what it asks for (ENG-11.16, 11.17). kube-scheduler may spread small Pods over
// many nodes so that no node has space for a large Pod, although the total would suffice. This cannot be predicted. It shows
// in Pods that stay unplaced, and each of them adds one unit of headroom. If that had no effect, one Pod of the row adds one, at most HeadroomTries times in a row.

// headroom is the headroom of the needs of one cluster.
type headroom struct {
	rows      map[demand.RowKey]rowHeadroom
	counted   uint64                  // version of the demand that it was last counted for
	grown     []int64                 // when it grew, in the last 24 h
	stuck     map[demand.RowKey]int64 // Pods reported when it last grew
	asked     int64                   // units that the cluster asked for in the last plan
	most      int64                   // the most that it asked for since it has headroom
	helped    bool                    // fewer Pods are unplaced since it last grew, or more is asked for than ever
	fruitless int32                   // growths in a row that followed one without effect
}

// HeadroomTries is how often headroom grows after a growth without effect, for one Pod of a row at a time. Another Pod may have
// taken what a growth brought, or the machine that counts for it was in the cluster already and is full.
const HeadroomTries = 4

// rowHeadroom is the headroom of one row. Its machines may count for more units than the row asks for; its Pods found no place
// on them, so these units are no headroom. If the row asks for them later, they become headroom.
type rowHeadroom struct {
	pods  int64 // that it was given for
	total int64 // units that the row shall have in all
	units int64 // of it beyond what the row asks for now
	own   int64 // units that its own machines shall hold: what they held when it grew, and what it was given; 0 is not known
	keep  int64 // own, less what the row no longer asks for

	grown int64 // when it last grew
	asked int64 // the most that the row asked for when it grew
	base  int64 // what it asked for when it last grew; 0 is not known
	times int32 // growths since one helped or the row asked for more than ever
}

// due reports whether a row may get headroom now. The first time it gets it at once, and again when fewer of its Pods are reported than
// when headroom last grew: that helped, and others took a part of it. Else it waits stuck_after, and twice as long each further time
// (ENG-11.16).
func (e *sharingEntry) due(k demand.RowKey, asked, now int64, p *engine.Policy) bool {
	r, had := e.headroom.rows[k]
	return !had || r.times == 0 || asked > r.asked || e.reported[k] < e.headroom.stuck[k] || now-r.grown >= doubled(p.StuckAfter, int(r.times)-1)
}

// inUse reports whether every node of the machines that a row claims is known to run something: others took what headroom brought.
func inUse(w *engine.World, b *engine.Block, row int32) (is bool) {
	for _, c := range b.Claims {
		if c.Row != row {
			continue
		}
		r := w.Inventory.Row(c.Machine)
		if is = r.Seen() == inventory.Configured && r.Occupancy().InUse(); !is {
			return false
		}
	}
	return is
}

// of is the headroom of a row that asks for so many units. If that is less than when it grew, room is what it was then, and its machines hold less.
func (x rowHeadroom) of(asked int64) rowHeadroom {
	x.units, x.keep = max(x.pods, x.total-max(asked, x.base)), max(min(x.own, 1), x.own-max(0, x.base-asked))
	return x
}

// observeHeadroom gives headroom to rows whose Pods found no place. It takes headroom back when the demand shrinks and nothing has
// been stuck for long.
func (e *sharingEntry) observeHeadroom(w *engine.World, b *engine.Block, now int64, p *engine.Policy) (changed bool) {
	x := &e.headroom
	asked := int64(0)
	for i := range b.Needs {
		asked = resource.AddSat(asked, unitsOf(&b.Needs[i]))
	}
	if len(x.rows) == 0 {
		x.most = asked
	} else {
		// Demand that only comes back finds the machines that were there for it: it has not taken what headroom brought.
		x.helped = x.helped || asked > x.most
		x.most = max(x.most, asked)
		for k, n := range x.stuck {
			x.helped = x.helped || e.reported[k] < n
		}
		if x.helped {
			x.fruitless = 0
		}
		changed = x.forget(b.Needs)
	}
	if e.grow(w, b, now, p) {
		x.grown = slices.DeleteFunc(x.grown, func(t int64) bool { return now-t >= day })
		x.grown = append(x.grown, now)
		x.stuck, x.asked, x.helped = maps.Clone(e.reported), asked, false
		return true
	}
	fell := asked < x.asked
	x.asked = asked
	if len(x.rows) > 0 && fell && now-max(e.lastStuck, x.grown[len(x.grown)-1]) >= doubled(p.SharingCalm, len(x.grown)-1) {
		x.rows, changed = map[demand.RowKey]rowHeadroom{}, true
	}
	return changed
}

// grow gives each Pod without a place one unit of headroom, beyond what the machines of its row hold already. After a growth without effect it gives
// one Pod of a row one unit, at most HeadroomTries times in a row: the Pods may lack something else.
func (e *sharingEntry) grow(w *engine.World, b *engine.Block, now int64, p *engine.Policy) (grew bool) {
	x, again := &e.headroom, int32(0)
	for i := range b.Needs {
		n, k := &b.Needs[i], b.Needs[i].RowKey()
		since, known := e.since[k]
		if !known || !e.allThere(k) && now-since < p.StuckAfter {
			continue
		}
		asked := unitsOf(n)
		if !e.due(k, asked, now, p) && !inUse(w, b, int32(i)) {
			continue
		}
		more := min(e.reported[k], asked)
		r, had := x.rows[k]
		if had && r.units > 0 && !x.helped {
			if x.fruitless >= HeadroomTries {
				continue
			}
			more, again = min(more, 1), 1
		}
		if n.Form.Same != nil {
			more = freeBeside(w, b, int32(i), more)
		}
		if more > 0 {
			if x.helped || asked > r.asked {
				r.times = 0
			}
			counted := unitsCounted(w, b, int32(i))
			r.pods, r.total, r.own = r.pods+more, counted+more, max(0, counted-unitsShared(b, int32(i)))+more
			r.grown, r.asked, r.base, r.times = now, max(r.asked, asked), asked, r.times+1
			x.rows[k], grew = r.of(asked), true
		}
	}
	x.fruitless += again
	return grew
}

// unitsShared is how many units of a need are shares.
func unitsShared(b *engine.Block, row int32) (units int64) {
	for _, s := range b.Shares {
		if s.Row == row {
			units = resource.AddSat(units, s.Units)
		}
	}
	return units
}

// unitsCounted is how many units of a need its claims and shares hold.
func unitsCounted(w *engine.World, b *engine.Block, row int32) (units int64) {
	n, cl := &b.Needs[row], w.Demand.Cluster(b.Cluster)
	sum := newUnitSum(w, n)
	for _, c := range b.Claims {
		if c.Row == row && n.MinUnit.Len() > 0 && cl != nil {
			sum.add(c.Machine, unitsOn(w, w.Inventory.Row(c.Machine).Class, cl, n))
		}
	}
	for _, s := range b.Shares {
		if s.Row == row {
			sum.add(s.Machine, s.Units)
		}
	}
	return sum.units()
}

// freeBeside is how many units of a gang the free machines of its domain hold, at most so many. With more than that its domain cannot hold
// the gang, which would look for another one and be bought again there.
func freeBeside(w *engine.World, b *engine.Block, row int32, most int64) (units int64) {
	n, cl := &b.Needs[row], w.Demand.Cluster(b.Cluster)
	key, _ := w.Space.Strings.Find(n.Form.Same.Key)
	domain, known := domainOf(w, b, row, key)
	if cl == nil || !known {
		return 0
	}
	inv, m := w.Inventory, match.NewMatcher(n.Form, w.Inventory)
	for class := range uint32(inv.Classes()) {
		c := inv.Class(class)
		if c.Serial == 0 || !m.Matches(inv, class) {
			continue
		}
		each := unitsOn(w, class, cl, n)
		for k := 0; each > 0 && k < len(c.Pools); k++ {
			for _, chunk := range c.Pools[k].Chunks() {
				for _, i := range chunk {
					if v, has := inv.Value(i, key); has && v == domain && !inv.WithheldFrom(i, b.Cluster) {
						units = resource.AddSat(units, each)
					}
					if units >= most {
						return most
					}
				}
			}
		}
	}
	return units
}

// domainOf is the domain of a gang: the one that it chose, or the one of a machine that it is on, if it fits one.
func domainOf(w *engine.World, b *engine.Block, row int32, key symbol.ID) (symbol.ID, bool) {
	if d := b.Domain(row); d != "" {
		return w.Space.Strings.Find(d)
	}
	row = effectiveRow(b, row)
	for _, c := range b.Claims {
		if c.Row == row {
			return w.Inventory.Value(c.Machine, key)
		}
	}
	for _, s := range b.Shares {
		if s.Row == row {
			return w.Inventory.Value(s.Machine, key)
		}
	}
	return 0, false
}

// forget drops the headroom of rows that are gone, and computes that of the others again.
func (x *headroom) forget(needs []demand.Need) (changed bool) {
	live := make(map[demand.RowKey]rowHeadroom, len(x.rows))
	for i := range needs {
		k := needs[i].RowKey()
		if r, ok := x.rows[k]; ok && unitsOf(&needs[i]) > 0 {
			live[k] = r.of(unitsOf(&needs[i]))
		}
	}
	changed = !maps.Equal(live, x.rows)
	x.rows = live
	return changed
}

// doubled doubles a duration a number of times, up to one day.
func doubled(d int64, times int) int64 {
	for range times {
		d = min(2*d, day)
	}
	return d
}

// unitsOf is how many min units a Need asks for, rounded up in its largest dimension.
func unitsOf(n *demand.Need) (units int64) {
	for i := range n.MinUnit.Len() {
		if u := n.MinUnit.Val(i); u > 0 {
			units = max(units, (n.Aggregate.Get(n.MinUnit.Dim(i))+u-1)/u)
		}
	}
	return units
}

// Headroom is how many units a row gets beyond what it asks for, or if negative how many are served elsewhere. The core passes it to
// demand.Table.SetHeadroom.
func (s *Sharing) Headroom(cluster string, row demand.RowKey) int64 {
	if e := s.clusters[cluster]; e != nil {
		return e.headroom.rows[row].units - e.elsewhere.rows[row].units
	}
	return 0
}

// Own is how many units the own machines of a row shall hold, or 0. The core passes it to demand.Table.SetOwn.
func (s *Sharing) Own(cluster string, row demand.RowKey) int64 {
	if e := s.clusters[cluster]; e != nil {
		return e.headroom.rows[row].keep
	}
	return 0
}

// HeadroomEntry is the headroom of one row.
type HeadroomEntry struct {
	Row   demand.RowKey `n:"1"`
	Units int64         `n:"2"`
	Pods  int64         `n:"3"`
	Total int64         `n:"4"`
	Grown int64         `n:"5"`
	Asked int64         `n:"6"`
	Times int32         `n:"7"`
	Own   int64         `n:"9"`
	Base  int64         `n:"10"`
	Keep  int64         `n:"11"`
}

func (x rowHeadroom) entry(k demand.RowKey) HeadroomEntry {
	return HeadroomEntry{Row: k, Units: x.units, Pods: x.pods, Total: x.total, Grown: x.grown, Asked: x.asked, Times: x.times, Own: x.own, Base: x.base, Keep: x.keep}
}

func (x HeadroomEntry) headroom() rowHeadroom {
	return rowHeadroom{units: x.Units, pods: x.Pods, total: x.Total, grown: x.Grown, asked: x.Asked, times: x.Times, own: x.Own, base: x.Base, keep: x.Keep}
}
