package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// roomsOfNeed is the rooms of the Need with a hard spread that was asked about last (ENG-13.9).
type roomsOfNeed struct {
	match.Rooms
	of     int32       // position in needs, or -1
	other  match.Rooms // scratch: what it would be otherwise
	ranks  match.Ranks // of Rooms, if ranked
	ranked bool

	// Needs mostly ask for the same machines and the same key.
	matcher uint32
	key     symbol.ID
	known   bool
	values  []symbol.ID         // under which the cluster has a machine for them
	seen    map[symbol.ID]int32 // positions of values
}

// roomsOf returns the room that w has under each value of its spread key. Values under which its cluster has a matching machine count, too.
func roomsOf(cl *clusterState, w *needState) *match.Rooms {
	if cl.rooms == nil {
		cl.rooms = &roomsOfNeed{of: -1, seen: map[symbol.ID]int32{}}
	}
	if r := cl.rooms; r.of != w.at {
		fillRooms(cl, &r.Rooms, w, nil)
		for _, m := range cl.promisedTo(w) {
			if v, has := cl.cat.Inventory.Value(m.idx, w.key); has {
				r.add(&r.Rooms, v, cl.unitsIn(w, cl.amount(w, m.class)))
			}
		}
		r.of, r.ranked = w.at, false
	}
	return &cl.rooms.Rooms
}

// position returns where rooms count a value, or -1.
func (n *roomsOfNeed) position(r *match.Rooms, v symbol.ID) int {
	if at, known := n.seen[v]; known && int(at) < len(r.Values) && r.Values[at] == v {
		return int(at)
	}
	return slices.Index(r.Values, v)
}

// add adds room under a value.
func (n *roomsOfNeed) add(r *match.Rooms, v symbol.ID, units int64) {
	if at := n.position(r, v); at >= 0 {
		r.Units[at] = resource.AddSat(r.Units[at], units)
		return
	}
	n.seen[v] = int32(len(r.Values))
	r.Values, r.Units = append(r.Values, v), append(r.Units, units)
}

// fullValues knows in a walk under which values of its key a Need with a hard spread has as many units as it may: no machine there contributes.
type fullValues struct {
	rooms  *roomsOfNeed
	values []int64
	most   int64
	last   int64 // a value, and whether it is full
	full   bool
}

func fullValuesOf(cl *clusterState, w *needState) (f fullValues) {
	if w.bits&wSpread != 0 {
		f = fullValues{most: roomsOf(cl, w).Most(), values: cl.values(cl.cat.Inventory, w.key), rooms: cl.rooms}
	}
	return f
}

// has reports whether the value of a machine is full. It stays so in a walk.
func (f *fullValues) has(at int32) bool {
	if f.rooms == nil {
		return false
	}
	if v := f.values[at]; !f.full || v != f.last {
		i := -1
		if v >= 0 {
			i = f.rooms.position(&f.rooms.Rooms, symbol.ID(v))
		}
		f.last, f.full = v, v < 0 || i >= 0 && f.rooms.Units[i] >= f.most
	}
	return f.full
}

// fillRooms adds up the room that w has on its claims and shares, but for the machines that are left out.
func fillRooms(cl *clusterState, r *match.Rooms, w *needState, without func(l *machineState) bool) {
	s := &cl.need(w).Form.Spread[0]
	values := cl.values(cl.cat.Inventory, w.key)
	r.Reset(s.MaxSkew, s.MinDomains, valuesFor(cl, w, values))
	var buf [8]int64
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if l := &cl.machines[at]; values[at] >= 0 && l.bits&lKept == 0 && (without == nil || !without(l)) {
			cl.rooms.add(r, symbol.ID(values[at]), cl.unitsIn(w, cl.worth(w, l, buf[:0])))
		}
	}
	for i := w.received; i >= 0; i = cl.shares[i].nextTo {
		if s := &cl.shares[i]; without == nil || !without(&cl.machines[s.on]) {
			cl.rooms.add(r, symbol.ID(values[s.on]), s.units)
		}
	}
}

// valuesFor lists the values under which the cluster has a matching machine.
func valuesFor(cl *clusterState, w *needState, values []int64) []symbol.ID {
	r, m := cl.rooms, cl.matcher(w)
	if r.known && r.key == w.key && m.Alike(cl.cat.ByID[r.matcher]) {
		return r.values
	}
	r.known, r.matcher, r.key, r.values = true, w.matcher, w.key, r.values[:0]
	clear(r.seen)
	for at := range cl.machines[:cl.members] {
		if l := &cl.machines[at]; values[at] >= 0 && l.bits&lExcluded == 0 && m.Has(l.class) {
			if _, seen := r.seen[symbol.ID(values[at])]; !seen {
				r.seen[symbol.ID(values[at])] = int32(len(r.values))
				r.values = append(r.values, symbol.ID(values[at]))
			}
		}
	}
	return r.values
}

// forget says that what counts for some Need is another now.
func (r *roomsOfNeed) forget() {
	if r != nil {
		r.of, r.ranked = -1, false
	}
}

// forgetAll says that the machines or the Needs of the cluster are others now.
func (r *roomsOfNeed) forgetAll() {
	if r != nil {
		r.of, r.known = -1, false
	}
}

// contributes reports whether a machine of the cluster that w does not claim reduces its residual (ENG-6.4), if it is worth so much.
func contributes(cl *clusterState, w *needState, at int32, worth []int64) bool {
	if !match.Touches(worth, cl.rest(w)) {
		return false
	}
	if w.bits&wSpread == 0 {
		return true
	}
	v := cl.values(cl.cat.Inventory, w.key)[at]
	return v >= 0 && roomsOf(cl, w).Helps(symbol.ID(v), cl.unitsIn(w, worth))
}
