package sources

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

const answersMax = 64 // kept of one shard

// Kept says for how long an answer serves equal questions.
type Kept struct {
	share time.Duration // a number: an answer that took a second serves for so many, so that equal questions cost a shard at most that part of its time
	last  time.Duration // and no longer than this
}

// Rows are kept shortly: people act on them. Sums take a shard long, and change little.
var (
	Rows = Kept{100, 15 * time.Second}
	Sums = Kept{400, 30 * time.Second}
)

// answers are a shard's newest answers by question: viewers of the same page cost it one call.
type answers struct {
	mu  sync.Mutex
	all map[string]*answer
}

type answer struct {
	ready chan struct{}
	asked time.Time
	until time.Time // set when it is ready
	value proto.Message
	err   error
	left  bool // who asked has left
}

// Shared asks the shard, or gives what it said to an equal question a moment ago. Who asks and leaves ends the call, and one of those who wait
// asks again: a page that is gone costs the shard nothing. The answer is shared and not to be changed. age is for how long the shard has not been asked.
func Shared[Req, Res proto.Message](ctx context.Context, s *Shard, keep Kept, procedure string, req Req, ask func() (Res, error)) (_ Res, age time.Duration, _ error) {
	var none Res
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return none, 0, err
	}
	key := procedure + "\x00" + string(text)
	for {
		a, mine := s.answers.take(key)
		if mine {
			got, err := ask()
			a.value, a.err, a.left = got, err, ctx.Err() != nil
			a.until = time.Now().Add(min(keep.last, keep.share*time.Since(a.asked)))
			close(a.ready)
			return got, 0, err
		}
		select {
		case <-a.ready:
		case <-ctx.Done():
			return none, 0, ctx.Err()
		}
		if a.err == nil || !a.left {
			got, _ := a.value.(Res)
			return got, time.Since(a.asked), a.err
		}
	}
}

// Forget drops the answer: an order has changed what the shard says.
func (s *Shard) Forget() {
	s.answers.mu.Lock()
	defer s.answers.mu.Unlock()
	s.answers.all = nil
}

func (x *answers) take(key string) (a *answer, mine bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.all[key]; a != nil && !a.old() {
		return a, false
	}
	if x.all == nil || len(x.all) >= answersMax {
		x.drop()
	}
	a = &answer{ready: make(chan struct{}), asked: time.Now()}
	x.all[key] = a
	return a, true
}

// old says that the answer is there and has served its time.
func (a *answer) old() bool {
	select {
	case <-a.ready:
		return a.err != nil || time.Now().After(a.until)
	default:
		return false
	}
}

// drop forgets answers that are old, and all when that makes no room.
func (x *answers) drop() {
	for key, a := range x.all {
		if a.old() {
			delete(x.all, key)
		}
	}
	if x.all == nil || len(x.all) >= answersMax {
		x.all = map[string]*answer{}
	}
}
