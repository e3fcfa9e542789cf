package session

import (
	"sync"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Class orders frames by what their loss would cost.
type Class uint8

const (
	// Essential frames (hello ack, bootstrap request, reclaim instruction and its cancellation) are a FIFO and are
	// never dropped while the session lives.
	Essential Class = iota
	// Keyed frames hold one state each; only the newest of a key is kept. They are not dropped either.
	Keyed
	// NeedStatus frames are keyed, and the second kind to go when the outbox is full.
	NeedStatus
	// Hint frames are keyed, and the first kind to go.
	Hint

	classes = 4
)

func (c Class) String() string {
	return [...]string{"essential", "keyed", "need_status", "hint"}[c]
}

// Frame is one queued message. Render makes the wire form in the writer's goroutine, so that a producer never pays for
// it; Bytes is the producer's estimate of that form.
type Frame struct {
	Class  Class
	Key    string // empty for Essential
	Bytes  int
	Render func() *pb.ShardMessage
}

// OutboxLimits bounds one outbox (SHARD-9.2, SHARD-9.4).
type OutboxLimits struct {
	EssentialFrames int
	Bytes           int
}

// OutboxStats is what an outbox did since it was made; all but Depth only grow.
type OutboxStats struct {
	Depth     [classes]int
	Coalesced int64
	Dropped   [classes]int64
}

// Outbox is the queue between the shard and one operator. Producers never block and never touch the stream: one tenant
// that stops reading must not stop the loop (SHARD-9.1). One goroutine, the session's writer, takes frames out.
type Outbox struct {
	limits OutboxLimits

	mu        sync.Mutex
	essential []Frame
	keyed     map[string]*Frame
	order     []string // keys by first insertion; entries no longer in keyed are skipped
	depth     [classes]int
	bytes     int
	run       int // essential frames taken since the last keyed one
	closed    bool
	active    bool // somebody takes frames out
	stopped   chan struct{}
	coalesced int64
	dropped   [classes]int64
}

// essentialRun is how many essential frames go before one keyed frame is let through (SHARD-9.5).
const essentialRun = 64

// NewOutbox returns an empty outbox.
func NewOutbox(l OutboxLimits) *Outbox {
	return &Outbox{limits: l, stopped: make(chan struct{})}
}

// Put queues a frame. It answers false when the session has to end as a slow consumer: too many essential frames wait,
// or the bytes do not fit although every hint and need status was dropped. After Close it answers true and does nothing.
// When begin is true no goroutine takes frames out, and the caller has to start one that calls Next until that answers
// false: at rest a session has no writer.
func (o *Outbox) Put(f Frame) (begin, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false, true
	}
	if f.Class == Essential {
		if len(o.essential) >= o.limits.EssentialFrames {
			return false, false
		}
		o.essential = append(o.essential, f)
	} else if old, ok := o.keyed[f.Key]; ok {
		o.coalesced++
		o.bytes -= old.Bytes
		o.depth[old.Class]--
		*old = f
	} else {
		if o.keyed == nil {
			o.keyed = map[string]*Frame{}
		}
		o.keyed[f.Key] = &f
		o.order = append(o.order, f.Key)
	}
	o.depth[f.Class]++
	o.bytes += f.Bytes
	for _, c := range [...]Class{Hint, NeedStatus} {
		if o.bytes <= o.limits.Bytes {
			break
		}
		o.drop(c)
	}
	if o.bytes > o.limits.Bytes {
		return false, false
	}
	begin, o.active = !o.active, true
	return begin, true
}

// drop removes every frame of a class.
func (o *Outbox) drop(c Class) {
	if o.depth[c] == 0 {
		return
	}
	kept := o.order[:0]
	for _, k := range o.order {
		f, ok := o.keyed[k]
		if ok && f.Class == c {
			o.bytes -= f.Bytes
			o.dropped[c]++
			delete(o.keyed, k)
			continue
		}
		kept = append(kept, k)
	}
	o.order = kept
	o.depth[c] = 0
}

// Next takes the next frame: essential ones first, but after a run of them one keyed frame; keyed frames by first
// insertion. It answers false when nothing waits, and the next Put starts over.
func (o *Outbox) Next() (Frame, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.essential) > 0 && (o.run < essentialRun || len(o.order) == 0) {
		f := o.essential[0]
		o.essential[0] = Frame{}
		o.essential = o.essential[1:]
		o.run++
		o.took(f)
		return f, true
	}
	if len(o.order) == 0 {
		o.active = false
		if o.closed {
			close(o.stopped)
		}
		o.essential, o.order, o.keyed = nil, nil, nil // a session at rest holds no queue
		return Frame{}, false
	}
	k := o.order[0]
	o.order[0] = ""
	o.order = o.order[1:]
	f := *o.keyed[k]
	delete(o.keyed, k)
	o.run = 0
	o.took(f)
	return f, true
}

func (o *Outbox) took(f Frame) {
	o.depth[f.Class]--
	o.bytes -= f.Bytes
}

// Stopped is closed when the outbox is closed and no goroutine takes frames out any more.
func (o *Outbox) Stopped() <-chan struct{} { return o.stopped }

// Close drops everything; later frames are dropped too.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if o.closed = true; !o.active {
		close(o.stopped)
	}
	o.essential, o.order, o.bytes = nil, nil, 0
	o.keyed = nil
	o.depth = [classes]int{}
}

// Stats reads the counters.
func (o *Outbox) Stats() OutboxStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return OutboxStats{Depth: o.depth, Coalesced: o.coalesced, Dropped: o.dropped}
}
