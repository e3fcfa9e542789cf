package planner

import "math"

// A shard that is out of machines has tens of thousands of short Needs in every plan. A Need that got nothing in its allocation gets nothing
// until its cluster changes or a machine becomes free. The fast path asks per matcher whether anything is free or can be preempted,
// and reads neither the Need nor its cluster (ENG-21.4).

// idle says whether the last allocation of a Need got nothing.
type idle uint8

const (
	notIdle idle = iota
	idleSpread
	idlePlain // it has no spread
)

// noteIdle records that an allocation got nothing. Gangs are never recorded: they depend on more than what matches.
func (p *planning) noteIdle(s *pendingNeed, w *needState) {
	switch {
	case p.off.noPassing || w.bits&(wSame|wFolded) != 0 || p.marks[s.allocation.cl]&staleMark != 0:
		s.idle = notIdle
	case w.bits&wSpread != 0:
		s.idle = idleSpread
	default:
		s.idle = idlePlain
	}
}

// passes reports whether the next allocation of a Need would get nothing again.
func (p *planning) passes(s *pendingNeed) bool {
	if s.idle == notIdle || p.marks[s.allocation.cl]&staleMark != 0 {
		return false
	}
	m := p.cat.ByID[s.matcher]
	return !p.anyFree(m, 0) && !p.anyFree(m, 1)
}

// beyondReach reports whether preemption has nothing for an unchanged Need: no machine in flight is promised to a lower priority, and
// no excess and no victim matches (ENG-15.15).
func (p *planning) beyondReach(s *pendingNeed) bool {
	if s.idle == notIdle || p.marks[s.allocation.cl]&staleMark != 0 {
		return false
	}
	if !p.inFlightListed {
		p.listInFlight()
	}
	priority := s.allocation.priority()
	if len(p.inFlight) > 0 && p.inFlight[0].prio < priority {
		return false
	}
	if !p.excess.built {
		p.excess.listExcess(p)
	}
	if !p.victims.built {
		p.victims.listVictims(p)
	}
	m := p.cat.ByID[s.matcher]
	return p.excess.lowest(p, m) == math.MaxInt64 && p.victims.lowest(p, m) >= int64(priority)
}

// reasonStays reports whether the reason of a shortfall is the one of the last plan: the Need is unchanged, and no machine was or is
// withheld (ENG-19.4).
func (p *planning) reasonStays(s *pendingNeed) bool {
	was := s.reasonValid
	s.reasonValid = s.idle == idlePlain && p.w.Inventory.Held().Len() == 0
	return was && s.reasonValid
}
