package core

import "container/heap"

// timerKind says what a deadline is for.
type timerKind uint8

const (
	timerCycle timerKind = iota + 1 // the longest pause between cycles
	timerSpacing
	timerPull     // a bootstrap pull waits too long; subject: request id
	timerAckWait  // a Preempt waited long enough for its ack; subject: operation id
	timerRepeat   // an instruction is repeated; subject: operation id
	timerAsk      // ask Get about an unknown outcome; subject: operation id
	timerStuck    // an operation or transition takes too long; subject: machine id
	timerList     // a provider's List is due; subject: provider
	timerDispatch // a token, backoff or breaker lets something go
	timerPause    // a pause expires; subject: pause id
	timerConfirm  // a held first roll-up may be judged again; subject: cluster
	timerFence    // a fence suspicion moves on; subject: provider
	timerHints    // hints or need statuses are due
	timerPoison
	timerPublish     // readers are to see what happened
	timerInstruction // an instruction that waits is looked at again
	timerAnnounced   // an announced host should be gone; subject: machine id
	timerDrainEnd    // the deadline of a drain that waits for its operator; subject: operation id
	timerHandover    // a Preempt waited long enough for a session; subject: operation id
	timerAlone       // the coordinator has had its time to say what this shard owns
	timerForget      // a cluster has been away for long; subject: cluster
	timerStage       // large roll-ups are taken in part by part
	timerListShort   // the short rows of the last plan are listed
	timerCheckpoint  // a checkpoint waits
)

// timer is one deadline. Deadlines are never removed: the handler checks whether the deadline still applies.
type timer struct {
	At      int64     `n:"1"`
	Seq     int64     `n:"2"` // deadlines of one moment go in the order they were made
	Kind    timerKind `n:"3"`
	Subject string    `n:"4"`
}

type timers struct {
	heap timerHeap
	seq  int64
	last map[timer]bool // exact duplicates are not stored twice; Seq is zero here
}

func (t *timers) add(at int64, k timerKind, subject string) {
	key := timer{At: at, Kind: k, Subject: subject}
	if t.last == nil {
		t.last = map[timer]bool{}
	}
	if t.last[key] {
		return
	}
	t.last[key] = true
	t.seq++
	key.Seq = t.seq
	heap.Push(&t.heap, key)
}

// remember notes a restored deadline.
func (t *timers) remember(e timer) {
	if t.last == nil {
		t.last = map[timer]bool{}
	}
	t.last[timer{At: e.At, Kind: e.Kind, Subject: e.Subject}] = true
}

// due takes the earliest deadline that has passed.
func (t *timers) due(now int64) (timer, bool) {
	if len(t.heap) == 0 || t.heap[0].At > now {
		return timer{}, false
	}
	e := heap.Pop(&t.heap).(timer)
	delete(t.last, timer{At: e.At, Kind: e.Kind, Subject: e.Subject})
	return e, true
}

type timerHeap []timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h timerHeap) Less(i, j int) bool {
	return h[i].At < h[j].At || h[i].At == h[j].At && h[i].Seq < h[j].Seq
}

func (h *timerHeap) Push(x any) { *h = append(*h, x.(timer)) }

func (h *timerHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
