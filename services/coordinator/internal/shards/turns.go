package shards

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Turns bounds how many reports are worked on at a time. Thousands arrive at once after a restore or a change of leader;
// each costs a fraction of a millisecond, and together they would keep the processor from the few goroutines that send and
// answer heartbeats, so that the leader falls over what it was elected for. A report that waits for the log gives its turn
// to another one, so no report waits for the commit of another (COORD-7.11). When it goes on it comes before those that have
// not begun: what was done for it would be lost if its sender gave up.
type Turns struct {
	mu   sync.Mutex
	free int
	// waiting are those that go on, and those that begin, in the order they came. A turn is handed over by closing.
	begun, new []chan struct{}
}

// turnsPerProcessor leaves the scheduler of the runtime something to choose from, and heartbeats a short queue.
const turnsPerProcessor = 4

// NewTurns returns Turns for this machine.
func NewTurns() *Turns { return &Turns{free: turnsPerProcessor * runtime.GOMAXPROCS(0)} }

type turnKey struct{}

// Take waits for a turn. It returns a context that knows of it and a function that ends it, or an error when ctx ended;
// after most, it is full.
func (t *Turns) Take(ctx context.Context, most time.Duration, full error) (context.Context, func(), error) {
	waiting, cancel := context.WithTimeoutCause(ctx, most, full)
	defer cancel()
	if !t.enter(waiting, &t.new) {
		return nil, nil, context.Cause(waiting)
	}
	held := &turn{turns: t, held: true}
	return context.WithValue(ctx, turnKey{}, held), held.leave, nil
}

// enter waits in a queue for a turn, and reports whether there was one before ctx ended.
func (t *Turns) enter(ctx context.Context, queue *[]chan struct{}) bool {
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

// next hands a turn that ended to the next in line. Called with mu held.
func (t *Turns) next() {
	for _, queue := range []*[]chan struct{}{&t.begun, &t.new} {
		if len(*queue) > 0 {
			close((*queue)[0])
			*queue = (*queue)[1:]
			return
		}
	}
	t.free++
}

// turn belongs to one call, and is touched by its goroutine alone.
type turn struct {
	turns *Turns
	held  bool
}

func (t *turn) leave() {
	if !t.held {
		return
	}
	t.held = false
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.turns.next()
}

// pause gives the turn of a call away until the function it returns is called. A call whose context ended goes on without
// one: it has nothing left to do.
func pause(ctx context.Context) (resume func()) {
	t, _ := ctx.Value(turnKey{}).(*turn)
	if t == nil || !t.held {
		return func() {}
	}
	t.leave()
	return func() { t.held = t.turns.enter(ctx, &t.turns.begun) }
}
