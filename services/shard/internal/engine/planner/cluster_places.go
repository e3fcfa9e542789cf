package planner

// places is the memory of clusters at work, many in one piece: a collection goes through all of them, and one that lies behind
// the other is at hand when its allocation comes.
type places struct {
	rest    []clusterState  // of the last piece
	vacant  []*clusterState // where clusters were that are gone
	leaving []*clusterState // those that were there before the last look at which there are
}

// piece is how many clusters lie together at the most.
const piece = 256

// take returns an empty place, of so many that may be asked for.
func (s *places) take(of int) *clusterState {
	if n := len(s.vacant); n > 0 {
		cl := s.vacant[n-1]
		s.vacant = s.vacant[:n-1]
		return cl
	}
	if len(s.rest) == 0 {
		s.rest = make([]clusterState, min(of, piece))
	}
	cl := &s.rest[0]
	s.rest = s.rest[1:]
	return cl
}

// leavePlaces empties the places of clusters that are gone, once nothing else names them.
func (p *planning) leavePlaces() {
	s := &p.places
	for _, cl := range s.leaving {
		if !cl.gone {
			continue
		}
		if id := cl.d.ID; p.byID[id] == cl { // else another cluster has the number now
			p.byID[id] = nil
		}
		*cl = clusterState{}
		s.vacant = append(s.vacant, cl)
	}
	s.leaving = s.leaving[:0]
}
