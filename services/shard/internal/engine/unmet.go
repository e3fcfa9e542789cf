package engine

// When demand exceeds supply, hundreds of thousands of Needs are short after their turns, and most of them are gangs that ask
// the same. Who it is is noted as turns go by, in turn order, for section 15 and the result; and a gang with nothing of its own,
// and nothing unclaimed in its cluster, gets the answer of the last one that asked the same: there is no room.

// unmet is a Need that turns left short.
type unmet struct {
	at       int32 // in unmetNeeds.asked
	ref      Ref
	preempts bool // section 15 may do something for it
}

// unmetNeeds is all that are short, in turn order.
type unmetNeeds struct {
	known  bool // and these are all: nobody has lost anything
	gained bool // some may be covered by now
	list   []unmet
	asked  []standing // the queue of the turns
}

func (u *unmetNeeds) begin() { u.known, u.gained, u.list = false, false, u.list[:0] }

// end gives back what only large plans need.
func (u *unmetNeeds) end() {
	u.asked = nil
	if cap(u.list) > keepTurns {
		u.list = nil
	}
}

// noteUnmet notes that what has the turn i is short.
func (p *planning) noteUnmet(i int, s *standing, preempts bool) {
	at := int32(i)
	if p.order != nil {
		at = p.order[i].at
	}
	u := &p.unmet
	if len(u.list) == cap(u.list) && cap(u.list) >= radixMin {
		u.list = append(make([]unmet, 0, max(2*len(u.list), len(p.queue)/2)), u.list...)
	}
	u.list = append(u.list, unmet{at, Ref{s.turn.cl, s.row}, preempts})
}

// mayPreempt reports whether section 15 looks at w at all: a gang that has no domain is none of its concern.
func (w *want) mayPreempt() bool { return w.bits&wSame == 0 || w.bits&wChosen != 0 }

// isShort looks again at a Need that turns left short.
func (p *planning) isShort(u *unmet) bool {
	if !p.unmet.gained {
		return true
	}
	t := p.unmet.asked[u.at].turn
	cl, w := p.state(t)
	return cl.short(w)
}

// noteRefusal notes that there is nothing left for a gang with a question: free machines only become fewer while Needs take
// turns.
func (p *planning) noteRefusal(cl *clusterState, w *want, ask uint32) {
	if w.bits&wChosen != 0 || cl.loose > 0 || len(p.w.Inventory.Avoided(cl.d.ID)) > 0 {
		return
	}
	r := &p.runs
	if r.refused == nil {
		r.refused = map[uint32]uint32{}
	}
	r.refused[ask] = p.stock.gen
	r.lastRefused = 0
}

// refuses reports whether the turn of a bare gang comes to nothing, without a look at it.
func (p *planning) refuses(s *standing) bool {
	r := &p.runs
	if s.ask != r.lastRefused {
		if gen, asked := r.refused[s.ask]; !asked || gen != p.stock.gen {
			return false
		}
		r.lastRefused = s.ask
	}
	return p.states[s.turn.cl].loose == 0
}

// callPreemptors makes those that section 15 looks at the queue.
func (p *planning) callPreemptors() {
	p.called = p.called[:0]
	defer func() { p.queue, p.late = p.called, p.late[:0] }()
	if u := &p.unmet; u.known {
		for i := range u.list {
			if x := &u.list[i]; x.preempts && p.isShort(x) && !p.beyondReach(&u.asked[x.at]) {
				p.called = append(p.called, u.asked[x.at])
			}
		}
		return
	}
	p.stillShort(func(cl *clusterState) bool { return cl.served == p.plans }, func(t turn, s *standing) {
		if s != nil && (!s.turns() || p.beyondReach(s)) {
			return
		}
		if s == nil {
			if cl, w := p.state(t); held(w) || cl.beyondHelp(w) {
				return
			}
		}
		p.called = append(p.called, standing{turn: t, open: true})
	})
}

// eachShort visits every short Need in turn order. s is what is remembered of one whose cluster nothing happened to, and nil for
// the others. It is for the end of a plan, when all blocks are there.
func (p *planning) eachShort(visit func(r Ref, s *standing)) {
	if !p.unmet.known {
		p.stillShort(func(cl *clusterState) bool { return len(cl.block.Missing) == 0 }, func(t turn, s *standing) {
			if s != nil {
				visit(Ref{t.cl, s.row}, s)
			} else {
				visit(p.refOf(t), nil)
			}
		})
		return
	}
	for i := range p.unmet.list {
		u := &p.unmet.list[i]
		if !p.isShort(u) {
			continue
		}
		if p.marks[u.ref.Block]&markSpoiled != 0 {
			visit(u.ref, nil)
		} else {
			visit(u.ref, &p.unmet.asked[u.at])
		}
	}
}
