package shards

import (
	"context"
	"runtime"
)

// Turns bounds how many reports are worked on at a time. Thousands arrive at once after a restore or a change of leader;
// each costs a fraction of a millisecond, and together they would keep the processor from the few goroutines that send and
// answer heartbeats, so that the leader falls over what it was elected for. A report that waits for the log gives its turn
// to another one, so no report waits for the commit of another (COORD-7.11).
type Turns struct{ free chan struct{} }

// turnsPerProcessor leaves the scheduler of the runtime something to choose from, and heartbeats a short queue.
const turnsPerProcessor = 4

// NewTurns returns Turns for this machine.
func NewTurns() *Turns {
	return &Turns{free: make(chan struct{}, turnsPerProcessor*runtime.GOMAXPROCS(0))}
}

type turnKey struct{}

// Take waits for a turn. It returns a context that knows of it and a function that ends it, or an error when ctx ended.
func (t *Turns) Take(ctx context.Context) (context.Context, func(), error) {
	if err := t.enter(ctx); err != nil {
		return nil, nil, err
	}
	held := &turn{turns: t, held: true}
	return context.WithValue(ctx, turnKey{}, held), held.leave, nil
}

func (t *Turns) enter(ctx context.Context) error {
	select {
	case t.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turn belongs to one call, and is touched by its goroutine alone.
type turn struct {
	turns *Turns
	held  bool
}

func (t *turn) leave() {
	if t.held {
		t.held = false
		<-t.turns.free
	}
}

// pause gives the turn of a call away until the function it returns is called. A call whose context ended goes on without
// one: it has nothing left to do.
func pause(ctx context.Context) (resume func()) {
	t, _ := ctx.Value(turnKey{}).(*turn)
	if t == nil || !t.held {
		return func() {}
	}
	t.leave()
	return func() { t.held = t.turns.enter(ctx) == nil }
}
