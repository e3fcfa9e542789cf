// Package nodereport tells the shard what the cluster sees of its machines' Nodes.
//
// A Reporter sends a report when what it would say of a machine changed and held for a moment: readiness that comes is
// believed after a second, readiness that goes after ten, so that a kubelet that blinks causes nothing. After each
// Hello it sends the full set, closed by an end marker. A report informs; it never drains or deletes anything (OP-11.4).
//
// To a shard with feature node-contents a report also says what the Node holds, which labels and allocatable it has. Under
// churn these are sent at most each second to five; that a node became empty, or holds protected Pods, is sent at once.
//
// Touch never blocks. Start at Reporter.Touch and Run. Tests cite the operator specification as OP-n.n.
package nodereport

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/contents"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

const (
	upAfter    = time.Second      // Ready came (OP-11.2)
	downAfter  = 10 * time.Second // Ready went
	checkEvery = 200 * time.Millisecond

	contentsQuiet = time.Second     // contents are sent when they rest for this long,
	contentsMax   = 5 * time.Second // or changed this long ago (OP-11.6)

	labelsMax, labelKeyMax, labelValueMax = 32, 317, 253 // the shard keeps so many labels; the rest is of the wire
	allocatableMax, quantityMax           = 64, 64
)

// Features of the shard that allow reports, and contents in them.
const (
	Feature         = "node-report"
	FeatureContents = "node-contents"
)

// Sender is what a Reporter needs of an open session.
type Sender interface {
	Report(subject string, m *pb.OperatorMessage)
}

// Reporter sends reports. Use New.
type Reporter struct {
	machines *machine.Registry
	contents *contents.Tracker
	onReady  func(id, node string)
	wake     chan struct{}

	mu      sync.Mutex
	running bool                // before Run nothing is noted: a standby replica may wait for months
	link    Sender              // nil: no session, or one whose shard does not want reports
	holds   bool                // the shard wants contents
	keys    []string            // of the labels that contents name, sorted
	moved   map[string]movement // machines whose contents may differ
	sent    map[string]*pb.NodeReport
	dirty   map[string]time.Time // since when a machine may differ from what was sent
	ready   map[string]bool      // machines that onReady heard of
}

// movement is when contents began to change, and changed last.
type movement struct{ first, last time.Time }

// New returns a Reporter. onReady hears when a machine's Node became Ready, with a session or without; it must not block
// and may be nil.
func New(machines *machine.Registry, holds *contents.Tracker, onReady func(id, node string)) *Reporter {
	if onReady == nil {
		onReady = func(string, string) {}
	}
	return &Reporter{machines: machines, contents: holds, onReady: onReady, wake: make(chan struct{}, 1), moved: map[string]movement{},
		sent: map[string]*pb.NodeReport{}, dirty: map[string]time.Time{}, ready: map[string]bool{}}
}

// Touch says that the Nodes of machines may have changed.
func (r *Reporter) Touch(ids []string) {
	r.mu.Lock()
	if !r.running {
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

// TouchContents says that the contents of a Node changed.
func (r *Reporter) TouchContents(node string) {
	id, ours := r.machines.MachineOf(node)
	if !ours {
		return
	}
	r.mu.Lock()
	if !r.running || !r.holds {
		r.mu.Unlock()
		return
	}
	now := time.Now()
	first := now
	if m, waits := r.moved[id]; waits {
		first = m.first
	}
	r.moved[id] = movement{first, now}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// SetKeys says by which label keys the demand selects, sorted: reports name these labels of a Node and no others.
func (r *Reporter) SetKeys(keys []string) {
	r.mu.Lock()
	same := slices.Equal(keys, r.keys)
	r.keys = keys
	r.mu.Unlock()
	if !same {
		r.Touch(r.machines.IDs())
	}
}

// Greeted sends the full set to a shard that wants reports, closed by an end marker (OP-11.1).
func (r *Reporter) Greeted(link Sender, holds bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link, r.holds = link, holds
	clear(r.moved)
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
	r.link, r.holds = nil, false
	clear(r.moved)
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
		if r.holds {
			out.Contents = r.held(id, n)
		}
	}
	return out
}

// held is what a Node holds, and how it differs from what the shard expects of it.
func (r *Reporter) held(id string, n *corev1.Node) *pb.NodeContents {
	c := r.contents.Of(n.Name)
	out := &pb.NodeContents{Pods: int32(c.Pods), PodsProtected: int32(c.Protected), DisruptionCostCents: c.CostCents}
	if !c.EmptySince.IsZero() {
		since := c.EmptySince
		if n.CreationTimestamp.After(since) {
			since = n.CreationTimestamp.Time
		}
		out.EmptySinceUnixNanos = since.UnixNano()
	}
	m, _ := r.machines.Machine(id)
	for _, k := range r.keys {
		v, has := n.Labels[k]
		if expected, ok := m.Labels[k]; !has || ok && expected == v || k == v1alpha1.LabelMachineID || len(k) > labelKeyMax || len(v) > labelValueMax || len(out.Labels) >= labelsMax {
			continue
		}
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[k] = v
	}
	for _, name := range slices.Sorted(maps.Keys(n.Status.Allocatable)) {
		q := n.Status.Allocatable[name]
		text := q.String()
		if len(name) > labelKeyMax || len(text) > quantityMax || len(out.Allocatable) >= allocatableMax {
			continue
		}
		if out.Allocatable == nil {
			out.Allocatable = map[string]string{}
		}
		out.Allocatable[string(name)] = text
	}
	return out
}

// Run sends changes until ctx ends. It begins with all machines that are known.
func (r *Reporter) Run(ctx context.Context) error {
	r.mu.Lock()
	r.running = true
	r.mu.Unlock()
	r.Touch(r.machines.IDs())
	for {
		wait := r.sendChanged(time.Now())
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
			case <-time.After(checkEvery):
			}
		case <-timer:
		}
	}
}

// sendChanged sends what held long enough. It returns when to look again; 0 means when something changes.
func (r *Reporter) sendChanged(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, since := range r.dirty {
		if _, known := r.machines.Machine(id); !known { // no longer this cluster's: nothing more is to be said of it
			delete(r.dirty, id)
			delete(r.moved, id)
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
		delete(r.moved, id)
		if n.Ready && !r.ready[id] {
			r.onReady(id, n.NodeName)
		}
		r.ready[id] = n.Ready
		if r.link != nil {
			r.send(id, n)
		}
	}
	for id, m := range r.moved {
		last := r.sent[id]
		if _, waits := r.dirty[id]; waits || r.link == nil || last == nil {
			if _, known := r.machines.Machine(id); !known {
				delete(r.moved, id)
			}
			continue // the report of the Node takes its contents along
		}
		n := r.report(id)
		if proto.Equal(n, last) {
			delete(r.moved, id)
			continue
		}
		if urgent(n.Contents, last.Contents) || now.Sub(m.last) >= contentsQuiet || now.Sub(m.first) >= contentsMax {
			delete(r.moved, id)
			r.send(id, n)
		}
	}
	if len(r.dirty) > 0 || len(r.moved) > 0 {
		return checkEvery
	}
	return 0
}

// urgent reports whether a node became empty or occupied, or whether its protection came or went.
func urgent(now, sent *pb.NodeContents) bool {
	return (now.GetPods() == 0) != (sent.GetPods() == 0) || (now.GetPodsProtected() == 0) != (sent.GetPodsProtected() == 0)
}
