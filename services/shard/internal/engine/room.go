package engine

import (
	"maps"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// This file says how many units a Need shall have beyond what it asks for (ENG-11.16, 11.17). Small Pods that kube-scheduler
// spreads over many nodes can leave none of them with room for a large one, although together there is more than enough. How it
// spreads is not known in advance and not followed: it shows in Pods that stay unplaced, and each of them gets room once.

// roomEntry is the room of the Needs of one cluster.
type roomEntry struct {
	rows    map[demand.RowKey]rowRoom
	counted uint64                  // version of the demand that it was last counted for
	grown   []int64                 // when it grew, in the last 24 h
	stuck   map[demand.RowKey]int64 // Pods reported when it last grew
	asked   int64                   // units that the cluster asked for in the last plan
	most    int64                   // and the most that it asked for since it has room
	helped  bool                    // fewer Pods are unplaced since it last grew, or more is asked for than ever
	vain    int32                   // growths in a row that came after one which had not helped
}

// roomTries is how often room grows after a growth that helped nobody, for one Pod of a row at a time. Another Pod may have taken
// what a growth brought, or the machine that counts for it was in the cluster already and is full.
const roomTries = 4

// rowRoom is the room of one row. It is for Pods that found none on machines which count for more than the row asks for, so that
// these units are not room; when the row asks for them later, they are.
type rowRoom struct {
	pods  int64 // it was given for
	total int64 // units that the row shall have in all
	units int64 // of it beyond what the row asks for now
}

// of is the room of a row that asks for so many units.
func (x rowRoom) of(asked int64) rowRoom {
	x.units = max(x.pods, x.total-asked)
	return x
}

// observeRoom gives room to rows that are stuck, and takes it back when the demand shrinks while nothing was stuck for long: what
// is given back thereby always follows a change of the demand.
func (e *sharingEntry) observeRoom(w *World, b *Block, now int64, p *Policy) (changed bool) {
	x := &e.room
	asked := int64(0)
	for i := range b.Needs {
		asked = resource.AddSat(asked, unitsOf(&b.Needs[i]))
	}
	if len(x.rows) == 0 {
		x.most = asked
	} else {
		// Demand that only comes back finds the machines that were there for it: it has not taken what room brought.
		x.helped = x.helped || asked > x.most
		x.most = max(x.most, asked)
		for k, n := range x.stuck {
			x.helped = x.helped || e.reported[k] < n
		}
		if x.helped {
			x.vain = 0
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
		x.rows, changed = nil, true
	}
	return changed
}

// grow gives each Pod that is stuck the room of one unit, beyond what the machines of its row have room for already. A row that had
// room gets as much again only if the last growth helped anybody: it may be that room is not what its Pods lack.
func (e *sharingEntry) grow(w *World, b *Block, now int64, p *Policy) (grew bool) {
	x, again := &e.room, int32(0)
	for i := range b.Needs {
		n, k := &b.Needs[i], b.Needs[i].RowKey()
		since, known := e.since[k]
		if !known || now-since < p.StuckAfter || n.Form.Same != nil {
			continue
		}
		asked := unitsOf(n)
		more := min(e.reported[k], asked)
		if _, had := x.rows[k]; had && !x.helped {
			if x.vain >= roomTries {
				continue
			}
			more, again = min(more, 1), 1
		}
		if more > 0 {
			if x.rows == nil {
				x.rows = map[demand.RowKey]rowRoom{}
			}
			x.rows[k] = rowRoom{pods: x.rows[k].pods + more, total: unitsCounted(w, b, int32(i)) + more}.of(asked)
			e.since[k], grew = now, true
		}
	}
	x.vain += again
	return grew
}

// unitsCounted is how many units of a Need its claims and shares have room for.
func unitsCounted(w *World, b *Block, row int32) (units int64) {
	n := &b.Needs[row]
	for _, c := range b.Claims {
		if c.Row != row {
			continue
		}
		supply, fit := w.Inventory.Class(w.Inventory.Row(c.Machine).Class).Supply, int64(math.MaxInt64)
		for i := range n.MinUnit.Len() {
			d := n.MinUnit.Dim(i)
			have := supply.Get(d)
			if cl := w.Demand.Cluster(b.Cluster); cl != nil {
				have -= cl.Overhead.Get(d)
			}
			fit = min(fit, max(0, have)/n.MinUnit.Val(i))
		}
		if n.MinUnit.Len() > 0 {
			units = resource.AddSat(units, fit)
		}
	}
	for _, s := range b.Shares {
		if s.Row == row {
			units = resource.AddSat(units, s.Units)
		}
	}
	return units
}

// Recount counts room anew where demand has changed, and lists the clusters in which it is another now, ascending. It is called
// before a plan: what a row had beyond its demand serves first when it asks for more (ENG-11.17), and not after something was
// bought for it.
func (s *Sharing) Recount(w *World) (changed []string) {
	for c, e := range s.clusters {
		if d := w.Demand.Cluster(c); d != nil && len(e.room.rows) > 0 && d.Version != e.room.counted {
			e.room.counted = d.Version
			if e.room.forget(d.Needs) {
				changed = append(changed, c)
			}
		}
	}
	slices.Sort(changed)
	return changed
}

// forget drops the room of rows that are gone, and counts that of the others anew.
func (x *roomEntry) forget(needs []demand.Need) (changed bool) {
	live := make(map[demand.RowKey]rowRoom, len(x.rows))
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

// doubled is a time doubled as often as said, at most a day.
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

// Room is how many units a row shall have beyond what it asks for. The core tells demand.Table.SetRoom.
func (s *Sharing) Room(cluster string, row demand.RowKey) int64 {
	if e := s.clusters[cluster]; e != nil {
		return e.room.rows[row].units
	}
	return 0
}

// Roomy lists the clusters with rows whose Room is not zero, ascending.
func (s *Sharing) Roomy() (out []string) {
	for c, e := range s.clusters {
		if len(e.room.rows) > 0 {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// RoomEntry is the room of one row.
type RoomEntry struct {
	Row   demand.RowKey `n:"1"`
	Units int64         `n:"2"`
	Pods  int64         `n:"3"`
	Total int64         `n:"4"`
}
