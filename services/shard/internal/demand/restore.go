package demand

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Saved is one row of a Table as a checkpoint keeps it.
type Saved struct {
	Row      Row   `n:"1"`
	Arrival  int64 `n:"2"`
	Hold     Hold  `n:"3"`
	Unplaced bool  `n:"4"`
	Room     int64 `n:"5"`
	Own      int64 `n:"6"`

	Full []string `n:"7"`
}

// Save lists the rows of a cluster in allocation order, with what the core said about each, and the overhead of its nodes.
func (t *Table) Save(cluster string) (rows []Saved, overhead []resource.Quantity) {
	c := t.clusters[cluster]
	if c == nil {
		return nil, nil
	}
	dims := t.space.Dimensions
	for i := range c.Needs {
		n := &c.Needs[i]
		rows = append(rows, Saved{Row: Row{Profile: n.Form.Profile, Group: n.Group, Aggregate: n.Aggregate.Quantities(dims),
			MinUnit: n.MinUnit.Quantities(dims), RowID: n.RowID, Fingerprint: n.Form.Fingerprint}, Arrival: n.Arrival, Hold: c.Holds[i],
			Unplaced: i < len(c.Unplaced) && c.Unplaced[i], Room: c.HeadroomOf(i), Full: c.FullOf(i)})
		if i < len(c.Own) {
			rows[i].Own = c.Own[i]
		}
	}
	return rows, c.Overhead.Quantities(dims)
}

// Restore makes saved rows the demand of a cluster that the table does not know yet.
func (t *Table) Restore(cluster string, rows []Saved, overhead []resource.Quantity) {
	plain := make([]Row, len(rows))
	saved := make(map[RowKey]*Saved, len(rows))
	for i := range rows {
		plain[i] = rows[i].Row
		saved[RowKey{rows[i].Row.Fingerprint, rows[i].Row.Group}] = &rows[i]
	}
	t.Replace(cluster, plain, overhead, 0)
	c := t.clusters[cluster]
	for i := range c.Needs {
		c.Needs[i].Arrival = saved[c.Needs[i].RowKey()].Arrival
	}
	sortNeeds(c.Needs)
	for i := range c.Needs {
		c.byKey.set(c.Needs[i].Key, i)
	}
	t.SetHolds(cluster, func(n *Need) Hold { return saved[n.RowKey()].Hold })
	t.SetUnplaced(cluster, func(n *Need) bool { return saved[n.RowKey()].Unplaced })
	t.SetHeadroom(cluster, func(n *Need) int64 { return saved[n.RowKey()].Room })
	t.SetOwn(cluster, func(n *Need) int64 { return saved[n.RowKey()].Own })
	t.SetFull(cluster, func(n *Need) []string { return saved[n.RowKey()].Full })
	t.touch(c)
}
