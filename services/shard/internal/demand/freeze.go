package demand

import (
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Frozen is a Table at one moment, taken in little time: it shares what the table replaces and never changes, and Thaw
// copies the rest, on any goroutine.
type Frozen struct {
	table    Table
	clusters []Cluster
}

// Freeze takes the table as it is. The table may change at once.
func (t *Table) Freeze() *Frozen {
	f := &Frozen{clusters: make([]Cluster, len(t.ordered)), table: Table{freeForm: slices.Clone(t.freeForm), formIDs: t.formIDs,
		learnt: maps.Clone(t.learnt), learntVersion: t.learntVersion,
		keys: t.keys.clone(), version: t.version, set: t.set, rows: t.rows, part: t.part, logBase: t.logBase + uint64(len(t.log))}}
	for i, c := range t.ordered {
		f.clusters[i] = *c
	}
	return f
}

// Thaw returns an independent copy of the table as it was, in the thawed space. It is called once.
func (f *Frozen) Thaw(space *symbol.Space) *Table {
	t := &f.table
	t.space = space
	t.clusters, t.ordered = make(map[string]*Cluster, len(f.clusters)), make([]*Cluster, len(f.clusters))
	t.forms, t.rules = map[string]*Form{}, map[string]*rules{}
	copies := map[*Form]*Form{}
	var own func(f *Form) *Form
	own = func(f *Form) *Form { // counts are the live table's, which continues counting: they are counted again
		g := copies[f]
		if g == nil {
			g = &Form{Profile: f.Profile, Fingerprint: f.Fingerprint, ID: f.ID, Same: f.Same, Match: f.Match}
			copies[f], t.forms[f.Fingerprint] = g, g
			if g.Stripped = g; f.Stripped != f {
				g.Stripped = own(f.Stripped)
			}
			t.share(g)
		}
		g.refs++
		return g
	}
	for i := range f.clusters {
		c := &f.clusters[i]
		c.Needs = slices.Clone(c.Needs)
		for j := range c.Needs {
			c.Needs[j].Form = own(c.Needs[j].Form)
		}
		t.ordered[i], t.clusters[c.Name] = c, c
	}
	return t
}
