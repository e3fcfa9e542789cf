package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// What the tests in planner_test need to know of the inside.

// FastPaths names each fast path, and "all".
func FastPaths() []string {
	return []string{"runs", "passing", "sums", "at once", "zones", "radix", "again", "all"}
}

// Without turns a fast path off.
func (pl *Planner) Without(path string) {
	is := func(name string) bool { return path == name || path == "all" }
	pl.off = fastPaths{noRuns: is("runs"), noPassing: is("passing"), noSums: is("sums"), atOnce: is("at once"), noZones: is("zones"), noRadix: is("radix"), noAgain: is("again")}
}

// Took reports whether an allocation was made in a run.
func (pl *Planner) Took() bool { return cap(pl.p.runs.took) > 0 }

// MadeAgain lists the clusters whose Needs were made of those of the plan before in the last plan, or in a credit since.
func (pl *Planner) MadeAgain() (names []string) {
	for _, cl := range pl.p.clusters.states {
		if cl.again {
			names = append(names, cl.d.Name)
		}
	}
	return names
}

// Fills is how often a candidate index was filled.
func (pl *Planner) Fills() int { return pl.p.cat.Fills }

// Remembered is how many matchers, ids of matchers and markets a Planner keeps.
func (pl *Planner) Remembered() (matchers, ids, markets int) {
	c := pl.p.cat
	return len(c.Matchers), len(c.ByID), c.Size()
}

// CouldUse is what the last plan would count if a machine of a cluster were reclaimed.
func (pl *Planner) CouldUse(w *engine.World, cluster, machine string) int {
	i, _ := w.Inventory.Find(machine)
	cl := pl.p.clusters.byID[w.Demand.Cluster(cluster).ID]
	for at := range cl.machines {
		if l := &cl.machines[at]; l.idx == i {
			return pl.p.settling.couldUse(cl, l, int32(at))
		}
	}
	return -1
}

// CreditedAhead is how many clusters are credited for the next plan.
func (pl *Planner) CreditedAhead() int { return len(pl.p.clusters.ahead) }

// Counted is for how many sets of classes, and for how many kinds of gangs, a Planner has counted what domains have free.
func (pl *Planner) Counted() (sets, kinds int) {
	for _, t := range pl.p.tops.list {
		sets, kinds = sets+len(t.counts), kinds+len(t.kinds)
	}
	return sets, kinds
}

// Looks is how many domains, or bounds of some, gangs of all kinds looked at when they chose one, and how many domains when the reason was sought why they
// are short.
func (pl *Planner) Looks() (choice, reason int) {
	for _, t := range pl.p.tops.list {
		for _, g := range t.kinds {
			if g.s != nil {
				choice += g.s.looks
			}
		}
	}
	for _, x := range append(pl.p.workers.others, &pl.p.workers.own) {
		for _, g := range x.homes.kinds {
			reason += g.next
		}
	}
	return choice, reason
}

// Sums is how many sums of domains a Planner keeps.
func (pl *Planner) Sums() int {
	kept := map[*domainSums]bool{}
	for _, t := range pl.p.tops.list {
		for _, g := range t.kinds {
			kept[g.s] = g.s != nil
		}
		for _, c := range t.counts {
			for _, s := range c.sums {
				kept[s] = true
			}
		}
	}
	delete(kept, nil)
	return len(kept)
}

// ShareLooks is how many blocks of machines Needs have looked at for shares.
func (pl *Planner) ShareLooks() (n int) {
	for _, x := range append(pl.p.workers.others, &pl.p.workers.own) {
		n += x.offers.opened
	}
	return n
}
