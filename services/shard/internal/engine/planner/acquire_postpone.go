package planner

import (
	"encoding/binary"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// postponing holds Needs for one plan where those of a cluster would look at more domains than a plan may (ENG-12.11).
type postponing struct {
	*plan
	clusters *clusters
	pending  *pendingList
	tops     *topologies
	looks    []int64 // by cluster
}

// lookGroups divides the Needs of a cluster that look at domains into groups, one for each plan.
type lookGroups struct {
	looks int64
	of    []lookGroup
	kinds map[string]int64 // the group of gangs that differ in size alone, by what they match, key and unit
	key   []byte
}

type lookGroup struct {
	s  *pendingNeed
	at int64
}

// run leaves one group of such a cluster open, the next one in each plan.
func (po *postponing) run() {
	if po.policy.DomainLooks <= 0 || !po.tooMany() {
		return
	}
	groups := make([]lookGroups, len(po.looks))
	for i := range po.pending.list {
		s := &po.pending.list[i]
		if po.pending.order != nil {
			s = &po.pending.list[po.pending.order[i].at]
		}
		if po.looksAtDomains(s) && po.looks[s.allocation.cl] > po.policy.DomainLooks {
			po.add(&groups[s.allocation.cl], s)
		}
	}
	for at := range groups {
		g, cl := &groups[at], po.clusters.states[at]
		n := (g.looks + po.policy.DomainLooks - 1) / po.policy.DomainLooks
		if n <= 1 {
			continue
		}
		po.res.Counters.Groups = max(po.res.Counters.Groups, int(n))
		po.clusters.markStale(cl)
		for _, x := range g.of {
			if x.at != po.res.Cycle%n {
				cl.needs[x.s.allocation.need].hold, x.s.open = demand.HeldPostponed, false
				po.res.Counters.Postponed++
			}
		}
	}
}

func (po *postponing) looksAtDomains(s *pendingNeed) bool {
	return s.key != 0 && s.open && !s.beyondHelp
}

// tooMany adds up the looks of each cluster, and reports whether some has more than a plan may.
func (po *postponing) tooMany() (some bool) {
	po.looks = slices.Grow(po.looks[:0], len(po.clusters.states))[:len(po.clusters.states)]
	clear(po.looks)
	for i := range po.pending.list {
		if s := &po.pending.list[i]; po.looksAtDomains(s) {
			n := &po.looks[s.allocation.cl]
			*n += po.domains(s)
			some = some || *n > po.policy.DomainLooks
		}
	}
	return some
}

// domains is how many of the key of a Need there are.
func (po *postponing) domains(s *pendingNeed) int64 {
	if t := po.tops.find(s.key); t != nil {
		return int64(t.Top.Owned())
	}
	return 0
}

// add puts the next Need into a group.
func (po *postponing) add(g *lookGroups, s *pendingNeed) {
	cl, w := po.clusters.state(s.allocation)
	at := g.looks / po.policy.DomainLooks
	if w.bits&wSame != 0 {
		g.key = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(g.key[:0], w.matcher), uint32(w.key))
		g.key = cl.need(w).MinUnit.AppendKey(g.key)
		if first, known := g.kinds[string(g.key)]; known {
			g.of = append(g.of, lookGroup{s, first})
			return
		}
		if g.kinds == nil {
			g.kinds = map[string]int64{}
		}
		g.kinds[string(g.key)] = at
	}
	g.of = append(g.of, lookGroup{s, at})
	g.looks += po.domains(s)
}
