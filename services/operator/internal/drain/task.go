package drain

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// How a drain ended; the values are those of the metric.
const (
	outcomeDrained  = "drained"
	outcomeDeadline = "deadline"
	outcomeStopped  = "stopped"
	outcomeGone     = "node_gone"
)

// Reasons of a drain that was stopped.
const (
	reasonUser      = "UNCORDONED_BY_USER"
	reasonCancelled = "CANCELLED"
	reasonAbandoned = "ABANDONED"
)

// drain is the drain of one node. Fields below the line are guarded by the Drainer's lock.
type drain struct {
	d        *Drainer
	node     string
	uid      types.UID // of the Node: another one of the same name is another machine's life
	resumed  bool
	begun    time.Time
	wake     chan struct{}
	cordoned chan struct{}   // closed when the node is cordoned
	shown    <-chan struct{} // closed when the UpcomingNode says Draining
	stop     context.CancelFunc
	done     chan struct{} // closed when the task ends

	state        state
	asked        time.Time // last instruction for it
	instructions map[string]struct{}
	stale        bool  // the annotation lags behind state
	cordonErr    error // of the last attempt
	isCordoned   bool
	sawCordon    bool // the cache showed the node cordoned
	ended        bool
	outcome      string
	releasing    bool      // it is being cancelled
	goneSince    time.Time // the machine is not known to the shard; zero: it is
	deleting     bool      // its Node is being deleted, or was
	blocked      int       // Pods that a budget holds

	attempts
}

func newDrain(d *Drainer, n *corev1.Node, s state, resumed bool) *drain {
	now := time.Now()
	t := &drain{
		d: d, node: n.Name, uid: n.UID, resumed: resumed, begun: now, asked: now, state: s,
		wake: make(chan struct{}, 1), cordoned: make(chan struct{}), done: make(chan struct{}),
		instructions: map[string]struct{}{s.Instruction: {}}, attempts: newAttempts(),
	}
	t.shown = d.Show(s.Machine, upcoming.DrainRunning, "")
	return t
}

// tighten joins a further instruction: the deadline becomes the earlier one (OP-8.5). The caller holds the lock.
func (t *drain) tighten(s state, now time.Time) {
	t.asked = now
	t.instructions[s.Instruction] = struct{}{}
	if s.Deadline < t.state.Deadline || s.PreemptorPriority > t.state.PreemptorPriority {
		t.state.Deadline = min(t.state.Deadline, s.Deadline)
		t.state.PreemptorPriority = max(t.state.PreemptorPriority, s.PreemptorPriority)
		t.stale = true
	}
	if t.state.voluntary() && !s.voluntary() {
		t.state.Cause, t.stale = s.Cause, true // somebody needs the machine now
	}
	t.signal()
}

// present is the Node that is drained, nil when it is gone; a provider may use its name again at once.
func (t *drain) present() *corev1.Node {
	if n := t.d.Machines.Node(t.node); n != nil && n.UID == t.uid {
		return n
	}
	return nil
}

func (t *drain) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// cordonOutcome waits until the node is cordoned, or says why it is not yet.
func (t *drain) cordonOutcome(ctx context.Context, entry string) *pb.NodeFailure {
	select {
	case <-t.cordoned:
		return nil
	case <-t.done:
	case <-ctx.Done():
	}
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	switch {
	case t.isCordoned:
		return nil
	case t.outcome == outcomeGone:
		return &pb.NodeFailure{Node: entry, Reason: pb.NodeFailure_REASON_NOT_FOUND, Message: "the Node " + t.node + " is gone"}
	case t.cordonErr != nil:
		return &pb.NodeFailure{Node: entry, Reason: pb.NodeFailure_REASON_API_ERROR, Message: "cannot cordon Node " + t.node + ": " + t.cordonErr.Error()}
	}
	return &pb.NodeFailure{Node: entry, Reason: pb.NodeFailure_REASON_STILL_TRYING, Message: "Node " + t.node + " is not cordoned yet"}
}

// run cordons the node and empties it.
func (t *drain) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.d.mu.Lock()
	t.stop = cancel
	releasing := t.releasing
	t.d.mu.Unlock()
	defer close(t.done)
	if releasing {
		return
	}
	var evictions sync.WaitGroup
	defer evictions.Wait()
	if !t.cordon(ctx) {
		return
	}
	t.notifyPodOwners()
	t.report(pb.DrainState_DRAIN_STATE_RUNNING, "")
	reported, sent := time.Now(), ""
	for ctx.Err() == nil {
		now := time.Now()
		if t.step(ctx, now, &evictions) {
			return
		}
		current := t.progress()
		if since := now.Sub(reported); since >= reportEvery || since >= reportSpacing && current != sent {
			t.report(pb.DrainState_DRAIN_STATE_RUNNING, "")
			t.reportBlocked()
			reported, sent = now, current
		}
		t.pause(ctx, now)
	}
}

// step advances the drain once. It returns true when the drain is over.
func (t *drain) step(ctx context.Context, now time.Time, evictions *sync.WaitGroup) (over bool) {
	n := t.present()
	if n == nil {
		t.finish(outcomeGone, "")
		return true
	}
	if t.uncordoned(n) {
		t.yieldToUser(ctx)
		return true
	}
	t.refresh(ctx)
	waiting, terminating := t.survey()
	t.d.mu.Lock()
	voluntary := t.state.voluntary()
	t.d.mu.Unlock()
	if len(waiting) == 0 && terminating == 0 && t.empty(ctx, now) {
		t.finish(outcomeDrained, "")
		return true
	}
	t.d.mu.Lock()
	deadline := t.state.deadline()
	t.d.mu.Unlock()
	if !now.Before(deadline) {
		t.finish(outcomeDeadline, t.remains(len(waiting)+terminating))
		return true
	}
	if !t.d.Stopped() {
		t.evictDue(ctx, waiting, now, deadline, voluntary, evictions)
	}
	return false
}

// cordon tries until the node is cordoned, gone or out of time.
func (t *drain) cordon(ctx context.Context) bool {
	for pause := errorRetryMin / 4; ; pause = min(2*pause, errorRetryMax) {
		t.d.mu.Lock()
		s := t.state
		t.stale = false
		t.d.mu.Unlock()
		if n := t.present(); t.resumed && n != nil && !n.Spec.Unschedulable {
			t.yieldToUser(ctx) // someone uncordoned it while no operator was running
			return false
		}
		select {
		case t.d.cordons <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		err := t.patchNode(ctx, cordonPatch(s))
		<-t.d.cordons
		if apierrors.IsNotFound(err) {
			t.finish(outcomeGone, "")
			return false
		}
		t.d.mu.Lock()
		t.cordonErr, t.isCordoned = err, err == nil
		t.d.mu.Unlock()
		if err == nil {
			close(t.cordoned)
			return true
		}
		t.d.Log.Warn("a node cannot be cordoned", "node", t.node, "machine", s.Machine, "err", err)
		if time.Now().After(s.deadline()) {
			t.finish(outcomeDeadline, "the node could not be cordoned: "+err.Error())
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

func (t *drain) patchNode(ctx context.Context, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, cordonTimeout)
	defer cancel()
	return t.d.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.node}}, client.RawPatch(types.MergePatchType, patch))
}

// refresh writes a changed deadline into the annotation, so that a successor knows it.
func (t *drain) refresh(ctx context.Context) {
	t.d.mu.Lock()
	s, stale := t.state, t.stale
	t.stale = false
	t.d.mu.Unlock()
	if stale && t.patchNode(ctx, cordonPatch(s)) != nil {
		t.d.mu.Lock()
		t.stale = true
		t.d.mu.Unlock()
	}
}

// uncordoned reports whether someone made the node schedulable again (OP-8.16).
func (t *drain) uncordoned(n *corev1.Node) bool {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if n.Spec.Unschedulable {
		t.sawCordon = true
	}
	return t.sawCordon && !n.Spec.Unschedulable && !t.releasing
}

func (t *drain) yieldToUser(ctx context.Context) {
	t.finish(outcomeStopped, reasonUser)
	if err := t.patchNode(ctx, releasePatch(false)); err != nil && !apierrors.IsNotFound(err) {
		t.d.Log.Warn("the annotations of a drain could not be removed", "node", t.node, "err", err)
	}
}

// survey counts what is on the node, from the cache.
func (t *drain) survey() (waiting []*pods.Pod, terminating int) {
	for _, p := range t.d.Pods.On(t.node) {
		switch {
		case !pods.Evictable(p):
		case p.DeletionTimestamp != nil:
			terminating++
		default:
			waiting = append(waiting, p)
		}
	}
	t.observe(waiting, terminating)
	return waiting, terminating
}

// empty lists the Pods of the node from the API server: the cache may miss a new Pod (OP-8.11).
func (t *drain) empty(ctx context.Context, now time.Time) bool {
	if now.Sub(t.confirmed) < confirmEvery {
		return false
	}
	t.confirmed = now
	var list corev1.PodList
	if err := t.d.Client.List(ctx, &list, client.MatchingFields{"spec.nodeName": t.node}); err != nil {
		return false
	}
	for i := range list.Items {
		if pods.Evictable(pods.Of(&list.Items[i])) {
			return false
		}
	}
	return true
}

// pause waits for something to happen.
func (t *drain) pause(ctx context.Context, now time.Time) {
	t.d.mu.Lock()
	wait := min(checkEvery, max(t.state.deadline().Sub(now), time.Millisecond))
	t.d.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-t.wake:
	case <-timer.C:
	}
}

// remains describes what is left at the deadline (OP-8.12).
func (t *drain) remains(left int) string {
	text := fmt.Sprintf("The deadline passed with %d Pods left", left)
	if names := t.undisturbed(); len(names) > 0 {
		text += "; Pods marked do-not-disrupt: " + strings.Join(names, ", ")
	}
	if budgets := t.budgets(); len(budgets) > 0 {
		text += "; blocking disruption budgets: " + strings.Join(budgets, ", ")
	}
	return text
}
