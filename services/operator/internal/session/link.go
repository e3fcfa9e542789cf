package session

import (
	"strings"
	"sync"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Link is one open stream. Its methods never block and do nothing once the stream has ended.
type Link struct {
	onDrop   func()
	mu       sync.Mutex
	wake     chan struct{}
	closed   bool
	features map[string]bool // nil until the shard answered Hello
	largest  int64           // roll-up that the shard accepts, by its answer

	rollup      *pb.OperatorMessage
	rollupSince time.Time
	responses   []*pb.OperatorMessage
	reports     map[string]*pb.OperatorMessage
	order       []string // subjects of reports, first come first served
}

func newLink(onDrop func()) *Link {
	return &Link{onDrop: onDrop, wake: make(chan struct{}, 1), reports: map[string]*pb.OperatorMessage{}}
}

// Has says whether the shard named a feature in its answer to Hello. Before that answer it has none.
func (l *Link) Has(feature string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.features[feature]
}

// RollupBytesMax is the largest roll-up that the shard accepts by its answer to Hello; 0: it has not said.
func (l *Link) RollupBytesMax() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.largest
}

// answered keeps what the shard said of itself in its answer to Hello.
func (l *Link) answered(a *pb.Acknowledgement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := a.Features
	l.largest = max(0, a.MaxRollupBytes)
	l.features = map[string]bool{}
	for _, n := range names {
		l.features[strings.TrimSuffix(n, featureVersion)] = true
	}
}

// Rollup puts a roll-up into the slot, in the place of one that was not sent yet (OP-4.7).
func (l *Link) Rollup(needs *pb.ClusterCapacityNeeds) {
	l.mu.Lock()
	if l.rollup == nil {
		l.rollupSince = time.Now()
	}
	l.rollup = &pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: needs}}
	l.mu.Unlock()
	l.signal()
}

// Respond queues a response. It returns false, and the response is dropped, when too many wait (OP-4.8).
func (l *Link) Respond(m *pb.OperatorMessage) bool {
	l.mu.Lock()
	ok := !l.closed && len(l.responses) < ResponsesMax
	if ok {
		l.responses = append(l.responses, m)
	}
	closed := l.closed
	l.mu.Unlock()
	if !ok && !closed {
		l.onDrop()
	}
	l.signal()
	return ok
}

// Report puts the newest report of a subject in line, in the place of an older one of the same subject (OP-4.9).
func (l *Link) Report(subject string, m *pb.OperatorMessage) {
	l.mu.Lock()
	_, waits := l.reports[subject]
	switch {
	case l.closed:
	case waits:
		l.reports[subject] = m
	case len(l.reports) < ReportsMax:
		l.reports[subject] = m
		l.order = append(l.order, subject)
	default:
		l.onDrop()
	}
	l.mu.Unlock()
	l.signal()
}

func (l *Link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next takes the frame to send: responses, then reports, then the roll-up, which overtakes when it waited long enough.
func (l *Link) next() *pb.OperatorMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := len(l.responses) > 0 || len(l.order) > 0
	if l.rollup != nil && (!others || time.Since(l.rollupSince) >= rollupWaitMax) {
		m := l.rollup
		l.rollup = nil
		return m
	}
	if len(l.responses) > 0 {
		m := l.responses[0]
		l.responses = l.responses[1:]
		return m
	}
	if len(l.order) > 0 {
		subject := l.order[0]
		l.order = l.order[1:]
		m := l.reports[subject]
		delete(l.reports, subject)
		return m
	}
	return nil
}

// responsesWait says whether responses wait to be sent.
func (l *Link) responsesWait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.responses) > 0
}

func (l *Link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.rollup, l.responses, l.order = true, nil, nil, nil
	clear(l.reports)
}
