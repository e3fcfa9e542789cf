package planner

import (
	"container/heap"
	"sort"
)

// allocationQueue is the order in which Needs get allocations.
type allocationQueue struct {
	clusters *clusters
	unmet    *unmetNeeds

	entries   []pendingNeed  // in order,
	order     []keyed        // or in this order
	at        int            // how many of them have been visited
	requeued  allocationHeap // Needs that lost something and get another allocation (ENG-12.6)
	displaced int            // how often that happened: once for each machine that a Need lost (ENG-14.8)
}

// begin queues Needs: as they lie, or in the given order.
func (q *allocationQueue) begin(entries []pendingNeed, order []keyed) {
	q.entries, q.order, q.requeued = entries, order, q.requeued[:0]
}

// end empties the queue.
func (q *allocationQueue) end() { q.entries, q.order = nil, nil }

// next returns entry i.
func (q *allocationQueue) next(i int) *pendingNeed {
	if q.order != nil {
		return &q.entries[q.order[i].at]
	}
	return &q.entries[i]
}

// noteUnmet records that the Need of entry i is short.
func (q *allocationQueue) noteUnmet(i int, s *pendingNeed, preempts bool) {
	if s.covered {
		return
	}
	at := int32(i)
	if q.order != nil {
		at = q.order[i].at
	}
	q.unmet.note(at, s, preempts, len(q.entries))
}

// visit visits the Needs of the order in allocation order, and those that requeue adds meanwhile, each in its place. runOn may take
// several allocations of the order at once. visit gets the entry, or nil for an added Need.
func (q *allocationQueue) visit(visit func(cl *clusterState, w *needState, s *pendingNeed), runOn func() bool) {
	for q.at = 0; q.at < len(q.entries) || len(q.requeued) > 0; {
		if len(q.requeued) == 0 && runOn() {
			continue
		}
		if len(q.requeued) > 0 && (q.at == len(q.entries) || compareAllocations(q.requeued[0], q.next(q.at).allocation) < 0) {
			cl, w := q.clusters.state(heap.Pop(&q.requeued).(allocation))
			w.bits &^= wLate
			visit(cl, w, nil)
			continue
		}
		s := q.next(q.at)
		q.at++
		if !s.worthAllocating() {
			q.noteUnmet(q.at-1, s, false)
			continue
		}
		cl, w := q.clusters.state(s.allocation)
		visit(cl, w, s)
	}
}

// queued reports whether a Need still has an allocation ahead.
func (q *allocationQueue) queued(cl *clusterState, w *needState) bool {
	if w.bits&wLate != 0 {
		return true
	}
	t := allocationOf(cl, w)
	i := q.at + sort.Search(len(q.entries)-q.at, func(i int) bool { return compareAllocations(q.next(q.at+i).allocation, t) >= 0 })
	return i < len(q.entries) && q.next(i).allocation == t && q.next(i).worthAllocating()
}

// displace gives a Need that lost something to w another allocation (ENG-12.6), but for a gang that had its own before w (ENG-12.5a).
func (q *allocationQueue) displace(cl *clusterState, loser, w *needState) {
	q.displaced++
	loser.lost = true
	if loser.at > w.at && !held(loser) {
		q.requeue(cl, loser)
	}
}

// requeue gives a Need another allocation, unless one is still ahead.
func (q *allocationQueue) requeue(cl *clusterState, w *needState) {
	if !q.queued(cl, w) {
		w.bits |= wLate
		heap.Push(&q.requeued, allocationOf(cl, w))
	}
}

// allocationHeap has the next allocation first.
type allocationHeap []allocation

func (h allocationHeap) Len() int           { return len(h) }
func (h allocationHeap) Less(i, j int) bool { return compareAllocations(h[i], h[j]) < 0 }
func (h allocationHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *allocationHeap) Push(x any)        { *h = append(*h, x.(allocation)) }
func (h *allocationHeap) Pop() (x any) {
	last := len(*h) - 1
	x, *h = (*h)[last], (*h)[:last]
	return x
}
