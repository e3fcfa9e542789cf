package demand

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Room is what a machine of one instance type has for the Pods of one cluster, as the Nodes of the type report it (ENG-3.8).
type Room struct {
	Type    string              `n:"1"`
	Amounts []resource.Quantity `n:"2"`
}

// room is a Room in symbols.
type room struct {
	typ     symbol.ID // in Space.Strings
	amounts resource.Vector
}

// SetRooms replaces what a cluster has learnt of its Nodes, and reports whether anything changed. Of two entries for one type the first
// counts.
func (t *Table) SetRooms(cluster string, list []Room) bool {
	c := t.clusters[cluster]
	if c == nil {
		return false
	}
	list = canonicalRooms(list)
	if slices.EqualFunc(t.Rooms(cluster), list, sameRoom) {
		return false
	}
	old := c.rooms
	c.rooms = nil
	for _, r := range list {
		typ := t.space.Strings.Intern(r.Type)
		if t.learnt[typ]++; t.learnt[typ] == 1 {
			t.learntVersion++
		}
		c.rooms = append(c.rooms, room{typ, resource.Intern(t.space.Dimensions, r.Amounts)})
	}
	slices.SortFunc(c.rooms, func(a, b room) int { return cmp.Compare(a.typ, b.typ) })
	t.releaseRooms(old)
	t.touch(c)
	return true
}

func canonicalRooms(list []Room) []Room {
	out := slices.DeleteFunc(slices.Clone(list), func(r Room) bool { return r.Type == "" })
	slices.SortStableFunc(out, func(a, b Room) int { return strings.Compare(a.Type, b.Type) })
	out = slices.CompactFunc(out, func(a, b Room) bool { return a.Type == b.Type })
	for i := range out {
		out[i].Amounts = slices.DeleteFunc(slices.Clone(out[i].Amounts), func(q resource.Quantity) bool { return q.Name == "" || q.Milli <= 0 })
		slices.SortFunc(out[i].Amounts, func(a, b resource.Quantity) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

func sameRoom(a, b Room) bool { return a.Type == b.Type && slices.Equal(a.Amounts, b.Amounts) }

func (t *Table) releaseRooms(list []room) {
	for _, r := range list {
		if t.learnt[r.typ]--; t.learnt[r.typ] == 0 {
			delete(t.learnt, r.typ)
			t.learntVersion++
		}
		r.amounts.Release(t.space.Dimensions)
		t.space.Strings.Release(r.typ)
	}
}

// Rooms lists what a cluster has learnt, by type.
func (t *Table) Rooms(cluster string) (out []Room) {
	c := t.clusters[cluster]
	if c == nil {
		return nil
	}
	for _, r := range c.rooms {
		out = append(out, Room{t.space.Strings.Text(r.typ), r.amounts.Quantities(t.space.Dimensions)})
	}
	slices.SortFunc(out, func(a, b Room) int { return strings.Compare(a.Type, b.Type) })
	return out
}

// Learnt reports whether some cluster has learnt something of an instance type: machines of other types with equal supply are then no
// longer alike. LearntVersion grows with each change of the answer.
func (t *Table) Learnt(typ symbol.ID) bool { return t.learnt[typ] > 0 }
func (t *Table) LearntVersion() uint64     { return t.learntVersion }

// SameRooms reports whether two clusters have learnt the same.
func (c *Cluster) SameRooms(d *Cluster) bool {
	return slices.EqualFunc(c.rooms, d.rooms, func(a, b room) bool { return a.typ == b.typ && a.amounts.Equal(&b.amounts) })
}

// Knows reports whether the cluster has learnt something of an instance type.
func (c *Cluster) Knows(typ symbol.ID) bool {
	return slices.ContainsFunc(c.rooms, func(r room) bool { return r.typ == typ })
}

// CopyRooms gives a cluster what another has learnt.
func (c *Cluster) CopyRooms(from *Cluster) { c.rooms = from.rooms }

// AppendSupplyKey appends bytes that are equal exactly for clusters that Offer says the same to.
func (c *Cluster) AppendSupplyKey(b []byte) []byte {
	b = c.Overhead.AppendKey(b)
	for i := range c.rooms {
		n := c.rooms[i].typ
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
		b = c.rooms[i].amounts.AppendKey(b)
	}
	return b
}

// Offer is how much of one resource a machine has for the Pods of the cluster: what the cluster has learnt of machines of its type; else
// what its provider says, less what DaemonSets take (ENG-3.6, 3.8).
// unstated is what a machine has that does not name the resource.
func (c *Cluster) Offer(typ symbol.ID, supply *resource.Vector, d resource.Dim, unstated int64) int64 {
	if i, ok := slices.BinarySearchFunc(c.rooms, typ, func(r room, typ symbol.ID) int { return cmp.Compare(r.typ, typ) }); ok {
		if v := c.rooms[i].amounts.Get(d); v > 0 {
			return v
		}
	}
	have := supply.Get(d)
	if have == 0 {
		have = unstated
	}
	return max(0, have-c.Overhead.Get(d))
}

// Supply is Offer in the dimensions that some vectors name.
func (c *Cluster) Supply(space *symbol.Space, typ symbol.ID, supply *resource.Vector, of ...*resource.Vector) (out resource.Vector) {
	for _, v := range of {
		for i := range v.Len() {
			if d := v.Dim(i); out.Get(d) == 0 {
				out = out.With(d, c.Offer(typ, supply, d, resource.Unstated(space.Dimensions.Text(d))))
			}
		}
	}
	return out
}
