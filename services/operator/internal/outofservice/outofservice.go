// Package outofservice finds nodes that take no Pods: cordoned or tainted by somebody else, or NotReady for long (OP-11.7).
//
// A Watcher names the machines of such nodes. The roll-up carries them, and leaves out the demand of the Pods on them: supply
// and demand change in one frame. A Node that BigFleet drains itself is never named, nor is a taint that the machine, the
// kubelet or Kubernetes sets, nor one of a young Node that is not Ready yet. The number of NotReady nodes is
// capped per cluster and per zone, because a network fault must not buy a second fleet.
//
// It decides nothing and writes nothing. Start at Watcher.Run and evaluate. Tests cite the operator specification as OP-n.n.
package outofservice

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

// Feature is the shard's feature that allows the list in roll-ups.
const Feature = "out-of-service"

const (
	checkEvery  = 500 * time.Millisecond
	sweepEvery  = 5 * time.Second  // for what changes with time alone
	startingMax = 10 * time.Minute // a Node that is not Ready may have any taint for this long
	clusterCap  = 10               // percent of joined nodes that may be named NotReady, at least one node
	zoneCap     = 20               // percent of those of a zone
	detailMax   = 317              // bytes, on the wire

	notReadyAfterDefault = 5 * time.Minute
)

// Entry is one machine whose node takes no Pods.
type Entry struct {
	Machine, Node, Zone string
	Reason              pb.MachineOutOfService_Reason
	Since               time.Time
	Detail              string
	Capped              bool // NotReady, but above the cap: not named to the shard
}

// Config is what a Watcher needs.
type Config struct {
	Machines      *machine.Registry       // required
	Pods          *pods.Store             // required
	Changed       func(machines []string) // required: these machines came, went or changed; it must not block
	NotReadyAfter time.Duration           // 0 means 5 min
}

// Watcher knows the machines that are out of service. Use New. It is safe for concurrent use.
type Watcher struct {
	Config
	wake chan struct{}

	mu      sync.Mutex
	entries map[string]Entry     // by machine id
	seen    map[string]time.Time // by node: since when it is cordoned or tainted, as far as this process knows
}

// New returns a Watcher that knows no node.
func New(c Config) *Watcher {
	c.NotReadyAfter = cmp.Or(c.NotReadyAfter, notReadyAfterDefault)
	return &Watcher{Config: c, wake: make(chan struct{}, 1), entries: map[string]Entry{}, seen: map[string]time.Time{}}
}

// Touch says that Nodes or machines changed. It never blocks.
func (w *Watcher) Touch([]string) {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run evaluates the nodes until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		w.evaluate(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
		case <-w.wake:
			select { // changes in quick succession are evaluated together
			case <-ctx.Done():
				return nil
			case <-time.After(checkEvery):
			}
		}
	}
}

// evaluate finds what is out of service now and reports what changed.
func (w *Watcher) evaluate(now time.Time) {
	w.mu.Lock()
	next, seen := map[string]Entry{}, map[string]time.Time{}
	joined, joinedIn := 0, map[string]int{}
	var lost []Entry
	for _, id := range w.Machines.IDs() {
		n, _ := w.Machines.Find(id)
		m, _ := w.Machines.Machine(id)
		if n == nil || m.Leaving {
			continue
		}
		zone := n.Labels[corev1.LabelTopologyZone]
		joined++
		joinedIn[zone]++
		e, out := w.closed(n, m, now, seen)
		switch {
		case out:
			e.Machine, e.Node, e.Zone = id, n.Name, zone
			next[id] = e
		default:
			if ready, since, reason := machine.Ready(n); !ready && now.Sub(since) >= w.NotReadyAfter && !drainedByUs(n) {
				lost = append(lost, Entry{Machine: id, Node: n.Name, Zone: zone, Reason: pb.MachineOutOfService_REASON_NOT_READY, Since: since, Detail: clip(reason)})
			}
		}
	}
	w.capped(lost, joined, joinedIn, next)
	changed := w.difference(next)
	w.entries, w.seen = next, seen
	w.mu.Unlock()
	if len(changed) > 0 {
		w.Changed(changed)
	}
}

// closed reports whether somebody else cordoned or tainted a node.
func (w *Watcher) closed(n *corev1.Node, m machine.Machine, now time.Time, seen map[string]time.Time) (Entry, bool) {
	since := func() time.Time {
		at, known := w.seen[n.Name]
		if !known {
			at = now
		}
		seen[n.Name] = at
		return at
	}
	switch taint := foreign(n, m, now); {
	case drainedByUs(n):
		return Entry{}, false
	case n.Spec.Unschedulable:
		return Entry{Reason: pb.MachineOutOfService_REASON_CORDONED, Since: since(), Detail: clip(whyCordoned(n))}, true
	case taint != "":
		return Entry{Reason: pb.MachineOutOfService_REASON_TAINTED, Since: since(), Detail: clip(taint)}, true
	}
	return Entry{}, false
}

// whyCordoned is the reason that a person gave for a cordon, and who that was: "disk errors, by alice"; empty: there is none.
func whyCordoned(n *corev1.Node) string {
	why, who := n.Annotations[v1alpha1.AnnotationCordonReason], n.Annotations[v1alpha1.AnnotationCordonedBy]
	if why != "" && who != "" {
		why += ", by " + who
	}
	return why
}

func drainedByUs(n *corev1.Node) bool {
	_, ours := n.Annotations[v1alpha1.AnnotationDrain]
	return ours
}

// foreign is the key of a taint that neither the machine nor Kubernetes set; empty: there is none.
func foreign(n *corev1.Node, m machine.Machine, now time.Time) string {
	if ready, _, _ := machine.Ready(n); !ready && now.Sub(n.CreationTimestamp.Time) < startingMax {
		return "" // an agent may still have to remove it
	}
	for _, t := range n.Spec.Taints {
		lifecycle := strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
		own := slices.ContainsFunc(m.Taints, func(x corev1.Taint) bool { return x.Key == t.Key && x.Effect == t.Effect })
		if !lifecycle && !own && !startup(t.Key) && t.Effect != corev1.TaintEffectPreferNoSchedule {
			return t.Key
		}
	}
	return ""
}

// startup reports whether a taint by its name belongs to the start of a node: an agent removes it when it is ready.
func startup(key string) bool {
	return strings.HasSuffix(key, "not-ready") || strings.HasSuffix(key, "uninitialized") || strings.HasPrefix(key, "startup-taint.") || strings.HasPrefix(key, "readiness.k8s.io/")
}

// capped adds the nodes that are lost, as many as the caps allow: those named before first, then the longest lost.
func (w *Watcher) capped(lost []Entry, joined int, joinedIn map[string]int, next map[string]Entry) {
	slices.SortFunc(lost, func(a, b Entry) int {
		x, named := w.entries[a.Machine]
		y, other := w.entries[b.Machine]
		return cmp.Or(cmp.Compare(rank(y, other), rank(x, named)), a.Since.Compare(b.Since), cmp.Compare(a.Machine, b.Machine))
	})
	left, leftIn := max(1, joined*clusterCap/100), map[string]int{}
	for zone, n := range joinedIn {
		leftIn[zone] = max(1, n*zoneCap/100)
	}
	for _, e := range lost {
		if e.Capped = left == 0 || leftIn[e.Zone] == 0; !e.Capped {
			left--
			leftIn[e.Zone]--
		}
		next[e.Machine] = e
	}
}

func rank(e Entry, named bool) int {
	if named && !e.Capped && e.Reason == pb.MachineOutOfService_REASON_NOT_READY {
		return 1
	}
	return 0
}

func (w *Watcher) difference(next map[string]Entry) (changed []string) {
	for id, e := range next {
		if w.entries[id] != e {
			changed = append(changed, id)
		}
	}
	for id := range w.entries {
		if _, still := next[id]; !still {
			changed = append(changed, id)
		}
	}
	slices.Sort(changed)
	return changed
}

// Entries are the machines out of service, and NotReady ones above the cap, by machine id.
func (w *Watcher) Entries() []Entry {
	w.mu.Lock()
	out := make([]Entry, 0, len(w.entries))
	for _, e := range w.entries {
		out = append(out, e)
	}
	w.mu.Unlock()
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Machine, b.Machine) })
	return out
}

// Of returns the entry of a machine.
func (w *Watcher) Of(id string) (Entry, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, out := w.entries[id]
	return e, out
}

// List is the list for a roll-up, and the Pods whose demand it leaves out.
func (w *Watcher) List() (list []*pb.MachineOutOfService, left []types.UID) {
	for _, e := range w.Entries() {
		if e.Capped {
			continue
		}
		out := &pb.MachineOutOfService{MachineId: e.Machine, Reason: e.Reason, SinceUnixNanos: e.Since.UnixNano(), Detail: e.Detail}
		for _, p := range w.Pods.On(e.Node) {
			if pods.Evictable(p) {
				out.Pods++
				left = append(left, p.UID)
			}
		}
		list = append(list, out)
	}
	return list, left
}

func clip(s string) string {
	if len(s) > detailMax {
		return strings.ToValidUTF8(s[:detailMax], "")
	}
	return s
}
