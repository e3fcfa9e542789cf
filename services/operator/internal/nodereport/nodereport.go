// Package nodereport tells the shard what the cluster sees of its machines' Nodes.
//
// A Reporter sends a report when what it would say of a machine changed and held for a moment: readiness that comes is
// believed after a second, readiness that goes after ten, so that a kubelet that blinks causes nothing. After each
// Hello it sends the full set, closed by an end marker. A report informs; it never drains or deletes anything (OP-11.4).
//
// Touch never blocks. Start at Reporter.Touch and Run. Tests cite the operator specification as OP-n.n.
package nodereport

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

const (
	upAfter   = time.Second      // Ready came (OP-11.2)
	downAfter = 10 * time.Second // Ready went
	lookEvery = 200 * time.Millisecond
)

// Feature is the shard's feature that allows reports.
const Feature = "node-report"

// Sender is what a Reporter needs of an open session.
type Sender interface {
	Report(subject string, m *pb.OperatorMessage)
}

// Reporter sends reports. Use New.
type Reporter struct {
	machines *machine.Registry
	onReady  func(id, node string)
	wake     chan struct{}

	mu    sync.Mutex
	runs  bool   // before Run nothing is noted: a standby replica may wait for months
	link  Sender // nil: no session, or one whose shard does not want reports
	sent  map[string]*pb.NodeReport
	dirty map[string]time.Time // since when a machine may differ from what was sent
	ready map[string]bool      // machines that onReady heard of
}

// New returns a Reporter. onReady hears when a machine's Node became Ready, with a session or without; it must not block
// and may be nil.
func New(machines *machine.Registry, onReady func(id, node string)) *Reporter {
	if onReady == nil {
		onReady = func(string, string) {}
	}
	return &Reporter{machines: machines, onReady: onReady, wake: make(chan struct{}, 1),
		sent: map[string]*pb.NodeReport{}, dirty: map[string]time.Time{}, ready: map[string]bool{}}
}

// Touch says that the Nodes of machines may have changed.
func (r *Reporter) Touch(ids []string) {
	r.mu.Lock()
	if !r.runs {
		r.mu.Unlock()
		return
	}
	now := time.Now()
	for _, id := range ids {
		if _, waits := r.dirty[id]; !waits {
			r.dirty[id] = now
		}
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Greeted sends the full set to a shard that wants reports, closed by an end marker (OP-11.1).
func (r *Reporter) Greeted(link Sender) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = link
	clear(r.sent)
	for _, id := range r.machines.IDs() {
		r.send(id, r.report(id))
	}
	link.Report("node-end", message(&pb.NodeReport{LastOfFullSet: true}))
}

// Closed says that the session has ended.
func (r *Reporter) Closed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = nil
}

func message(n *pb.NodeReport) *pb.OperatorMessage {
	return &pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: n}}
}

func (r *Reporter) send(id string, n *pb.NodeReport) {
	r.sent[id] = n
	r.link.Report("node:"+id, message(n))
}

// report is what the cluster sees of a machine now.
func (r *Reporter) report(id string) *pb.NodeReport {
	out := &pb.NodeReport{MachineId: id}
	n, how := r.machines.Find(id)
	switch {
	case how == machine.Ambiguous:
		out.Reason = "AMBIGUOUS"
	case n != nil:
		ready, since, reason := machine.Ready(n)
		out.NodeName, out.Present, out.Ready, out.Reason, out.KubeletVersion = n.Name, true, ready, reason, n.Status.NodeInfo.KubeletVersion
		if !since.IsZero() {
			out.SinceUnixNanos = since.UnixNano()
		}
	}
	return out
}

// Run sends changes until ctx ends. It begins with all machines that are known.
func (r *Reporter) Run(ctx context.Context) error {
	r.mu.Lock()
	r.runs = true
	r.mu.Unlock()
	r.Touch(r.machines.IDs())
	for {
		wait := r.look(time.Now())
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			select { // a crowd of changes is looked at together
			case <-ctx.Done():
				return nil
			case <-time.After(lookEvery):
			}
		case <-timer:
		}
	}
}

// look sends what held long enough. It returns when to look again; 0 means when something changes.
func (r *Reporter) look(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, since := range r.dirty {
		if _, known := r.machines.Machine(id); !known { // no longer this cluster's: nothing more is to be said of it
			delete(r.dirty, id)
			delete(r.ready, id)
			delete(r.sent, id)
			continue
		}
		n := r.report(id)
		last := r.sent[id]
		if proto.Equal(n, last) && r.ready[id] == n.Ready {
			delete(r.dirty, id)
			continue
		}
		held := now.Sub(since)
		if n.Ready && !r.ready[id] && held < upAfter || !n.Ready && r.ready[id] && held < downAfter {
			continue
		}
		delete(r.dirty, id)
		if n.Ready && !r.ready[id] {
			r.onReady(id, n.NodeName)
		}
		r.ready[id] = n.Ready
		if r.link != nil {
			r.send(id, n)
		}
	}
	if len(r.dirty) > 0 {
		return lookEvery
	}
	return 0
}
