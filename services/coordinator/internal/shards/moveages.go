package shards

import (
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// moveAges measures how long this leader has seen each move in its state. Times in replicated records come from the clock of
// whichever replica proposed them, and no rule compares the clocks of two machines: with a clock that is an hour off, a cooldown of
// an hour would be over at once. So the cooldowns start over with each leadership, which is never too early.
type moveAges struct {
	mu   sync.Mutex
	seen map[moveStep]time.Time
}

// moveStep is one state of one move.
type moveStep struct {
	move  string
	since int64
}

func stepOf(m *pb.Move) moveStep { return moveStep{m.GetMoveId(), m.GetUpdatedAtUnixNanos()} }

// of returns for how long a move has been in its state, as this leader saw it.
func (a *moveAges) of(m *pb.Move, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, known := a.seen[stepOf(m)]
	if !known {
		if a.seen == nil {
			a.seen = map[moveStep]time.Time{}
		}
		at = now
		a.seen[stepOf(m)] = now
	}
	return now.Sub(at)
}

// refresh notes what is new and forgets what is gone.
func (a *moveAges) refresh(st *fleet.State, now time.Time) {
	there := map[moveStep]bool{}
	for m := range st.Moves() {
		there[stepOf(m)] = true
		a.of(m, now)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.seen {
		if !there[s] {
			delete(a.seen, s)
		}
	}
}
