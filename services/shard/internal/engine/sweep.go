package engine

import (
	"maps"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// Rows come and go with profiles that name ever new values. What is remembered of requirements that no row has any more is
// swept away when there is as much of it as of the others (ENG-21.11).

// newMatcher makes the matcher of the requirements of a Form.
func (c *catalog) newMatcher(f *demand.Form) *matcher {
	m := &matcher{form: f, id: uint32(len(c.everyM))}
	if n := len(c.freeM); n > 0 {
		m.id, c.freeM = c.freeM[n-1], c.freeM[:n-1]
		c.everyM[m.id] = m
	} else {
		c.everyM = append(c.everyM, m)
	}
	c.matchers[f.Match] = m
	return m
}

// sweepMin is how many matchers are not worth a sweep.
const sweepMin = 64

// sweep forgets the matchers that no Need at work uses, once they are half of all. Nobody but the Needs of clusters keeps
// the id of a matcher from plan to plan; topologies, which keep counts for some, begin anew.
func (p *planning) sweep() {
	c := p.cat
	if len(c.matchers) < sweepMin+2*c.inUse {
		return
	}
	used := make([]bool, len(c.everyM))
	for _, cl := range p.states {
		for i := range cl.wants {
			used[cl.wants[i].matcher] = true
		}
	}
	for id, m := range c.everyM {
		if m != nil && !used[id] {
			delete(c.matchers, m.form.Match)
			c.everyM[id] = nil
			c.freeM = append(c.freeM, uint32(id))
		}
	}
	c.inUse = len(c.matchers)
	dead := func(k *market) bool { return k.m != nil && c.everyM[k.m.id] != k.m }
	maps.DeleteFunc(c.zones, func(_ zoneKey, k *market) bool { return dead(k) })
	maps.DeleteFunc(c.markets, func(_ marketKey, k *market) bool { return dead(k) })
	for i := range c.forms {
		if e := &c.forms[i]; e.m != nil && c.everyM[e.m.id] != e.m {
			*e = formEntry{}
		}
	}
	p.tops = nil
}
