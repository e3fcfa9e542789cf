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
func (pl *pendingList) noteIdle(s *pendingNeed, w *needState) {
	switch {
	case pl.off.noPassing || w.bits&(wSame|wGang|wFolded) != 0 || pl.clusters.marks[s.allocation.cl]&staleMark != 0:
		s.idle = notIdle
	case w.bits&wSpread != 0:
		s.idle = idleSpread
	default:
		s.idle = idlePlain
	}
}

// passes reports whether the next allocation of a Need would get nothing again.
func (pl *pendingList) passes(s *pendingNeed) bool {
	if s.idle == notIdle || pl.clusters.marks[s.allocation.cl]&staleMark != 0 {
		return false
	}
	m := pl.cat.ByID[s.matcher]
	return !pl.free.Any(m, 0) && !pl.free.Any(m, 1)
}

// beyondReach reports whether preemption has nothing for an unchanged Need: no machine in flight is promised to a lower priority, and
// no excess and no victim matches (ENG-15.15).
func (pe *preemption) beyondReach(s *pendingNeed) bool {
	if s.idle == notIdle || pe.clusters.marks[s.allocation.cl]&staleMark != 0 {
		return false
	}
	if !pe.inFlightListed {
		pe.listInFlight()
	}
	priority := s.allocation.priority()
	if len(pe.inFlight) > 0 && pe.inFlight[0].prio < priority {
		return false
	}
	if !pe.excess.built {
		pe.excess.listExcess()
	}
	if !pe.victims.built {
		pe.victims.listVictims()
	}
	m := pe.cat.ByID[s.matcher]
	return pe.excess.lowest(m) == math.MaxInt64 && pe.victims.lowest(m) >= int64(priority)
}

// reasonStays reports whether the reason of a shortfall is the one of the last plan: the Need is unchanged, and no machine was or is
// withheld (ENG-19.4).
func (pl *pendingList) reasonStays(s *pendingNeed) bool {
	was := s.reasonValid
	s.reasonValid = s.idle == idlePlain && pl.w.Inventory.Held().Len() == 0
	return was && s.reasonValid
}
