package engine

import "math"

// In a shard that is out of machines tens of thousands of Needs are short, plan after plan. A Need whose turn came to nothing in
// its own cluster gets nothing there until something happens to the cluster, and is then credited anew. So it is enough to
// ask whether anything free matches, and whether section 15 could reach anything, of which there are few answers: one for
// each matcher. Neither the Need nor its cluster is read.

// idle says of a Need whether its last turn came to nothing.
type idle uint8

const (
	notIdle idle = iota
	idleSpread
	idlePlain // it has no spread
)

// noteIdle notes after a turn that it came to nothing. Gangs look at more than what matches.
func (p *planning) noteIdle(s *standing, w *want) {
	switch {
	case w.bits&(wSame|wFolded) != 0 || p.marks[s.turn.cl]&markSpoiled != 0:
		s.idle = notIdle
	case w.bits&wSpread != 0:
		s.idle = idleSpread
	default:
		s.idle = idlePlain
	}
}

// passes reports whether the turn of a Need would come to nothing again.
func (p *planning) passes(s *standing) bool {
	if s.idle == notIdle || p.marks[s.turn.cl]&markSpoiled != 0 {
		return false
	}
	m := p.cat.everyM[s.matcher]
	return !p.anyFree(m, 0) && !p.anyFree(m, 1)
}

// beyondReach reports whether section 15 has nothing for a Need that nothing happened to: nothing in flight was promised to a
// lower priority, and no excess and no victim matches (ENG-15.15).
func (p *planning) beyondReach(s *standing) bool {
	if s.idle == notIdle || p.marks[s.turn.cl]&markSpoiled != 0 {
		return false
	}
	if !p.flyersListed {
		p.listFlyers()
	}
	priority := s.turn.priority()
	if len(p.flyers) > 0 && p.flyers[0].prio < priority {
		return false
	}
	if !p.excess.built {
		p.excess.listExcess(p)
	}
	if !p.victims.built {
		p.victims.listVictims(p)
	}
	m := p.cat.everyM[s.matcher]
	return p.excess.lowest(p, m) == math.MaxInt64 && p.victims.lowest(p, m) >= int64(priority)
}

// reasonStays reports whether a Need is short for the reason that it was short for when this was last asked: nothing happened
// to it, and no mark withholds anything from anybody, now and then (ENG-19.4).
func (p *planning) reasonStays(s *standing) bool {
	was := s.reasoned
	s.reasoned = s.idle == idlePlain && p.w.Inventory.Held().Len() == 0
	return was && s.reasoned
}
