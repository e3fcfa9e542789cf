package provider

import (
	"sync"
)

// queue admits transitions to run: at most max at once, the rest waits, oldest first within a kind. Drain and Delete have
// a quarter reserved, so that a storm of purchases never keeps machines from being given back (PROV-19.4).
type queue struct {
	mu       sync.Mutex
	running  int
	buying   int // running Create and Configure
	max      int
	waitMax  int
	waiting  [5][]*work
	waitings int
}

// blobs counts the boot data that accepted transitions hold, because how many may wait and how large each may be have no bound together.
type blobs struct {
	mu   sync.Mutex
	held int
}

func (b *blobs) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && b.held+n > blobsBytesMax {
		return false
	}
	b.held += n
	return true
}

func (b *blobs) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}

func newQueue(max, waitMax int) *queue { return &queue{max: max, waitMax: waitMax} }

// full says whether a further transition of that kind would have to wait behind too many. It is asked before acceptance; between the
// two a few callers may slip in together, which the bound of the queue allows.
func (q *queue) full(k Kind) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.room(k) && q.waitings >= q.waitMax
}

// push starts w by calling run, now or when there is room.
func (q *queue) push(w *work) (now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.room(w.kind) {
		q.take(w.kind)
		return true
	}
	q.waiting[w.kind] = append(q.waiting[w.kind], w)
	q.waitings++
	return false
}

// done gives the place of a finished transition away and returns those that may run now.
func (q *queue) done(k Kind) []*work {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if buys(k) {
		q.buying--
	}
	var next []*work
	for _, kind := range [...]Kind{Delete, Drain, Configure, Create} {
		for len(q.waiting[kind]) > 0 && q.room(kind) {
			next = append(next, q.waiting[kind][0])
			q.waiting[kind] = q.waiting[kind][1:]
			q.waitings--
			q.take(kind)
		}
	}
	return next
}

// remove takes w out; false when it is running already.
func (q *queue) remove(w *work) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.waiting[w.kind] {
		if other == w {
			q.waiting[w.kind] = append(q.waiting[w.kind][:i:i], q.waiting[w.kind][i+1:]...)
			q.waitings--
			return true
		}
	}
	return false
}

func (q *queue) lengths() (waiting [5]int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range q.waiting {
		waiting[k] = len(q.waiting[k])
	}
	return waiting
}

func (q *queue) room(k Kind) bool {
	return q.running < q.max && (!buys(k) || q.buying < q.max-q.max/4)
}

func (q *queue) take(k Kind) {
	q.running++
	if buys(k) {
		q.buying++
	}
}

func buys(k Kind) bool { return k == Create || k == Configure }

// busy is how many transitions run or wait.
func (q *queue) busy() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running + q.waitings
}
