package sources

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

const (
	answersMax  = 64               // kept of one shard
	answerShare = 100              // an answer that took a second serves for a hundred, so that equal questions cost a shard at most a hundredth of its time
	answerLast  = 15 * time.Second // and no longer than this
)

// answers are a shard's newest answers by question: viewers of the same page cost it one call.
type answers struct {
	mu  sync.Mutex
	all map[string]*answer
}

type answer struct {
	ready chan struct{}
	until time.Time // set when it is ready
	value proto.Message
	err   error
	left  bool // who asked has left
}

// Shared asks the shard, or gives what it said to an equal question a moment ago. Who asks and leaves ends the call, and one of those who wait
// asks anew: a page that is gone costs the shard nothing. Nobody may change the answer.
func Shared[Req, Res proto.Message](ctx context.Context, s *Shard, procedure string, req Req, ask func() (Res, error)) (Res, error) {
	var none Res
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return none, err
	}
	key := procedure + "\x00" + string(text)
	for {
		a, mine := s.answers.take(key)
		if mine {
			began := time.Now()
			got, err := ask()
			a.value, a.err, a.left = got, err, ctx.Err() != nil
			a.until = time.Now().Add(min(answerLast, answerShare*time.Since(began)))
			close(a.ready)
			return got, err
		}
		select {
		case <-a.ready:
		case <-ctx.Done():
			return none, ctx.Err()
		}
		if a.err == nil || !a.left {
			got, _ := a.value.(Res)
			return got, a.err
		}
	}
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
	a = &answer{ready: make(chan struct{})}
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
