package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

// Outcomes of a look, as in the metric (OP-15.23).
const (
	OutcomeCreated     = "cr_created"
	OutcomeUpdated     = "cr_updated"
	OutcomeExists      = "cr_exists"
	OutcomeDeleted     = "cr_deleted"
	OutcomeGone        = "pod_gone"
	OutcomeTerminal    = "pod_terminal"
	OutcomeExcluded    = "pod_excluded"
	OutcomeForeign     = "pod_foreign"
	OutcomeWaiting     = "pod_waiting"
	OutcomeUnsupported = "unsupported"
	OutcomeError       = "error"
)

// Outcomes lists them all.
func Outcomes() []string {
	return []string{OutcomeCreated, OutcomeUpdated, OutcomeExists, OutcomeDeleted, OutcomeGone, OutcomeTerminal, OutcomeExcluded, OutcomeForeign, OutcomeWaiting, OutcomeUnsupported, OutcomeError}
}

// view is what is known of one Pod.
type view struct {
	pod     *corev1.Pod
	node    translate.Node
	objects []*Object // its requests; at most one, unless something went wrong
	joining bool      // its node may still turn out to be BigFleet's
	shared  bool      // the cluster has nodes of its own
}

func (k *Keeper) view(uid types.UID) view {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var v view
	if p := k.pods[uid]; p != nil {
		v.pod = p.Whole()
	}
	if v.pod != nil && v.pod.Spec.NodeName != "" {
		v.node.Object = k.nodes[v.pod.Spec.NodeName]
		if n := v.node.Object; n != nil {
			v.node.Unmanaged = k.Unmanaged.Matches(labelSet(n.Labels))
			v.node.Foreign = k.foreign(n)
			v.joining = v.node.Foreign && time.Since(n.CreationTimestamp.Time) < joinGrace
		}
	}
	v.shared = len(k.foreignNodes) > 0
	fresh := k.created[uid]
	for _, o := range k.objects[uid] {
		if o.DeletionTimestamp == nil {
			v.objects = append(v.objects, o)
		}
		if fresh != nil && fresh.UID == o.UID {
			fresh = nil
		}
	}
	if fresh != nil {
		v.objects = append(v.objects, fresh)
	}
	return v
}

type labelSet map[string]string

func (s labelSet) Has(key string) bool              { _, ok := s[key]; return ok }
func (s labelSet) Get(key string) string            { return s[key] }
func (s labelSet) Lookup(key string) (string, bool) { v, ok := s[key]; return v, ok }

// reconcile brings the request of one Pod to its desired form.
func (k *Keeper) reconcile(ctx context.Context, uid types.UID) (outcome string, err error) {
	v := k.view(uid)
	if v.pod == nil {
		return k.withdraw(ctx, uid, v, OutcomeGone)
	}
	switch translate.Eligible(v.pod, v.node, k.ExcludeNamespaces[v.pod.Namespace]) {
	case translate.Terminal:
		return k.withdraw(ctx, uid, v, OutcomeTerminal)
	case translate.Leaving:
		return k.withdraw(ctx, uid, v, OutcomeGone)
	case translate.Excluded:
		return k.withdraw(ctx, uid, v, OutcomeExcluded)
	case translate.Foreign:
		if !v.joining {
			return k.withdraw(ctx, uid, v, OutcomeForeign)
		}
		k.queue.AddAfter(uid, time.Until(v.node.Object.CreationTimestamp.Add(joinGrace)))
		if len(v.objects) == 0 {
			return OutcomeForeign, nil
		}
	}
	if left, undecided := translate.Undecided(v.pod, time.Now()); undecided && v.shared && len(v.objects) == 0 {
		k.queue.AddAfter(uid, left)
		return OutcomeWaiting, nil
	}
	if k.gathers(uid, v) {
		return OutcomeWaiting, nil
	}
	r := translate.Spec(v.pod, v.node.Object, k.Defaults)
	switch r.Eligibility {
	case translate.Undetermined:
		return OutcomeWaiting, nil
	case translate.Unsupported:
		k.notify(v.pod, r)
		return k.withdraw(ctx, uid, v, OutcomeUnsupported)
	}
	have := keep(v.objects, Name(v.pod.Name, v.pod.UID))
	if have != nil && (k.resumeTurn(v, have, r.Turns) || k.takeTurn(uid, have, r.Turns)) {
		r = translate.Spec(v.pod, v.node.Object, k.Defaults)
	}
	k.notify(v.pod, r)
	want := wanted(v.pod, r.Reduced)
	want.Spec = r.Spec
	for _, o := range v.objects {
		if o != have { // never two for one Pod
			if err := k.delete(ctx, uid, o); err != nil {
				return OutcomeError, err
			}
		}
	}
	if have == nil {
		outcome, err = k.create(ctx, uid, v.pod, want)
	} else {
		outcome, err = k.update(ctx, uid, have, want)
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, errForeign) { // only a user can repair it
		k.Record(events.Event{Regarding: subject(v.pod), Warning: true, Reason: "CapacityRequestRefused", Message: refusal(err)})
	}
	return outcome, err
}

// gathers reports whether a Pod without a request waits for the other members of its gang (OP-15.30).
func (k *Keeper) gathers(uid types.UID, v view) bool {
	if k.Gathering == nil || v.pod.Spec.NodeName != "" || len(v.objects) > 0 {
		return false
	}
	left, why, waits := k.Gathering(v.pod, time.Now())
	if waits && left > 0 {
		k.queue.AddAfter(uid, left)
	}
	if waits && why != "" && k.once(uid, why) {
		k.Record(events.Event{Regarding: subject(v.pod), Reason: "GangIncomplete", Message: why})
	}
	return waits
}

var errForeign = errors.New("delete it; to keep it for this Pod, remove only its label")

// refusal is the event text for the owner of a Pod.
func refusal(err error) string {
	if errors.Is(err, errForeign) {
		return err.Error()
	}
	return "The API server refuses the CapacityRequest, so BigFleet has no or outdated demand for this Pod: " + err.Error()
}

// keep picks the request that stays: the one with our name, else the oldest, which an earlier producer made (OP-15.4).
func keep(objects []*Object, name string) (kept *Object) {
	for _, o := range objects {
		switch {
		case o.Name == name:
			return o
		case kept == nil, o.CreationTimestamp.Before(&kept.CreationTimestamp),
			o.CreationTimestamp.Equal(&kept.CreationTimestamp) && o.Name < kept.Name:
			kept = o
		}
	}
	return kept
}

// withdraw deletes the requests of a Pod. why is the outcome when there is none.
func (k *Keeper) withdraw(ctx context.Context, uid types.UID, v view, why string) (string, error) {
	if len(v.objects) == 0 {
		return why, nil
	}
	for _, o := range v.objects {
		if err := k.delete(ctx, uid, o); err != nil {
			return OutcomeError, err
		}
	}
	return OutcomeDeleted, nil
}

func (k *Keeper) delete(ctx context.Context, uid types.UID, o *Object) error {
	err := k.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // conflict: another object has the name
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(uid, o)
	delete(k.created, uid)
	return nil
}

func (k *Keeper) create(ctx context.Context, uid types.UID, p *corev1.Pod, want *v1alpha1.CapacityRequest) (string, error) {
	o, err := object(want)
	if err != nil {
		return OutcomeError, err
	}
	err = k.Client.Create(ctx, o)
	switch {
	case err == nil:
		k.wrote(uid, o)
		k.Log.Debug("a CapacityRequest is created", "namespace", p.Namespace, "pod", p.Name)
		return OutcomeCreated, nil
	case apierrors.IsAlreadyExists(err):
		return k.adopt(ctx, uid, want)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return OutcomeGone, nil // the Pod goes with its namespace
	}
	return OutcomeError, err
}

// adopt handles an existing object of the same name: ours if it is for the same Pod (OP-15.3).
func (k *Keeper) adopt(ctx context.Context, uid types.UID, want *v1alpha1.CapacityRequest) (string, error) {
	var live Object
	if err := k.Client.Get(ctx, client.ObjectKeyFromObject(want), &live); err != nil {
		return OutcomeError, err
	}
	if got := live.owner(); got != uid {
		return OutcomeError, fmt.Errorf("CapacityRequest %s/%s belongs to another Pod, for its label %s is %q and not %q: %w",
			live.Namespace, live.Name, v1alpha1.LabelOwnedByPod, got, uid, errForeign)
	}
	if live.DeletionTimestamp != nil {
		return OutcomeError, errors.New("the old CapacityRequest of the same name is still being deleted")
	}
	k.wrote(uid, &live)
	return k.update(ctx, uid, &live, want)
}

// update sends one merge patch if the request differs from its desired form (OP-15.5).
func (k *Keeper) update(ctx context.Context, uid types.UID, have *Object, want *v1alpha1.CapacityRequest) (string, error) {
	if have.matches(want) {
		return OutcomeExists, nil
	}
	patch, err := difference(have, want)
	if err != nil {
		return OutcomeError, err
	}
	after := have.DeepCopyObject().(*Object)
	if err := k.Client.Patch(ctx, after, client.RawPatch(types.MergePatchType, patch)); err != nil {
		if apierrors.IsNotFound(err) {
			_ = k.delete(ctx, uid, have) // the cached object is gone
			return OutcomeError, errors.New("the CapacityRequest is gone; it is created again")
		}
		return OutcomeError, err
	}
	k.wrote(uid, after)
	return OutcomeUpdated, nil
}

// wrote notes what the API server has, until the cache has it too.
func (k *Keeper) wrote(uid types.UID, o *Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.find(uid, o); i >= 0 {
		k.objects[uid][i] = o
		return
	}
	k.created[uid] = o
}

func object(want *v1alpha1.CapacityRequest) (*Object, error) {
	spec, err := json.Marshal(want.Spec)
	if err != nil {
		return nil, err
	}
	return &Object{ObjectMeta: *want.ObjectMeta.DeepCopy(), Spec: text(spec)}, nil
}

// difference is the merge patch from what is there to what should be: spec, label and the note of reductions. It touches
// no label and no annotation of others.
func difference(have *Object, want *v1alpha1.CapacityRequest) ([]byte, error) {
	spec, err := json.Marshal(want.Spec)
	if err != nil {
		return nil, err
	}
	if have.Spec != "" {
		if spec, err = jsonpatch.CreateMergePatch([]byte(have.Spec), spec); err != nil {
			return nil, err
		}
	}
	reduced := any(nil) // null takes the annotation away
	if text, ok := want.Annotations[v1alpha1.AnnotationReduced]; ok {
		reduced = text
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"labels":      map[string]any{v1alpha1.LabelOwnedByPod: want.Labels[v1alpha1.LabelOwnedByPod]},
			"annotations": map[string]any{v1alpha1.AnnotationReduced: reduced},
		},
		"spec": json.RawMessage(spec),
	})
}

// notify counts ignored constraints and writes events about reductions, once for each form of a Pod.
func (k *Keeper) notify(p *corev1.Pod, r translate.Result) {
	if len(r.Ignored)+len(r.Reduced)+len(r.Faults) == 0 {
		return
	}
	text := strings.Join(r.Ignored, "\x00") + "\x01" + strings.Join(r.Reduced, "\x00") + "\x01" + strings.Join(r.Faults, "\x00")
	if !k.once(p.UID, text) {
		return
	}
	for _, kind := range r.Ignored {
		k.Unsupported.WithLabelValues(kind).Inc()
	}
	if len(r.Reduced) > 0 {
		k.Record(events.Event{Regarding: subject(p), Warning: r.Eligibility == translate.Unsupported, Reason: "CapacityReduced", Message: strings.Join(r.Reduced, "; ")})
	}
	if fields := r.Approximations(); len(fields) > 0 {
		k.Record(events.Event{Regarding: subject(p), Reason: "CapacityApproximate",
			Message: "These fields do not change the capacity that BigFleet provides: " + strings.Join(fields, "; ") + ". The Pod may wait although capacity was added."})
	}
	if len(r.Faults) > 0 {
		k.Record(events.Event{Regarding: subject(p), Warning: true, Reason: "PenaltyUnreadable", Message: strings.Join(r.Faults, "; ")})
	}
}

// once reports whether a text is not the last one that a Pod's owner got.
func (k *Keeper) once(pod types.UID, text string) bool {
	sum := maphash.String(seed, text)
	k.mu.Lock()
	defer k.mu.Unlock()
	same := k.notified[pod] == sum
	k.notified[pod] = sum
	return !same
}

var seed = maphash.MakeSeed() // only to tell texts apart within this process

func subject(p *corev1.Pod) events.Subject {
	return events.Subject{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}
