package shards

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// WorkSlots bounds how many reports are worked on at a time. Thousands arrive at once after a restore or a change of leader;
// each costs a fraction of a millisecond, and together they would keep the processor from the few goroutines that send and
// answer heartbeats, so that the leader falls over what it was elected for. A report that waits for the log gives its slot
// to another one, so no report waits for the commit of another (COORD-7.11). When it continues it comes before those that have
// not begun: what was done for it would be lost if its sender gave up.
type WorkSlots struct {
	mu   sync.Mutex
	free int
	// waiting are those that go on, and those that begin, in the order they came. A slot is handed over by closing.
	begun, new []chan struct{}
}

// slotsPerProcessor leaves the scheduler of the runtime something to choose from, and heartbeats a short queue.
const slotsPerProcessor = 4

// NewWorkSlots returns WorkSlots for this machine.
func NewWorkSlots() *WorkSlots { return &WorkSlots{free: slotsPerProcessor * runtime.GOMAXPROCS(0)} }

type slotKey struct{}

// Take waits for a slot. It returns a context that knows of it and a function that ends it, or an error when ctx ended;
// after most, it is full.
func (t *WorkSlots) Take(ctx context.Context, most time.Duration, full error) (context.Context, func(), error) {
	waiting, cancel := context.WithTimeoutCause(ctx, most, full)
	defer cancel()
	if !t.enter(waiting, &t.new) {
		return nil, nil, context.Cause(waiting)
	}
	held := &slot{slots: t, held: true}
	return context.WithValue(ctx, slotKey{}, held), held.leave, nil
}

// enter waits in a queue for a slot, and reports whether there was one before ctx ended.
func (t *WorkSlots) enter(ctx context.Context, queue *[]chan struct{}) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	*queue = append(*queue, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine: // meanwhile
		t.next()
	default:
		for i, other := range *queue {
			if other == mine {
				*queue = append((*queue)[:i:i], (*queue)[i+1:]...)
				break
			}
		}
	}
	return false
}

// next hands a free slot to the next in line. Called with mu held.
func (t *WorkSlots) next() {
	for _, queue := range []*[]chan struct{}{&t.begun, &t.new} {
		if len(*queue) > 0 {
			close((*queue)[0])
			*queue = (*queue)[1:]
			return
		}
	}
	t.free++
}

// slot belongs to one call, and is touched by its goroutine alone.
type slot struct {
	slots *WorkSlots
	held  bool
}

func (t *slot) leave() {
	if !t.held {
		return
	}
	t.held = false
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	t.slots.next()
}

// pause gives the slot of a call away until the function it returns is called. A call whose context ended continues without
// one: it has nothing left to do.
func pause(ctx context.Context) (resume func()) {
	t, _ := ctx.Value(slotKey{}).(*slot)
	if t == nil || !t.held {
		return func() {}
	}
	t.leave()
	return func() { t.held = t.slots.enter(ctx, &t.slots.begun) }
}
