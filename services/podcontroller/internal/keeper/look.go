package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
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
	OutcomeUnsupported = "unsupported"
	OutcomeError       = "error"
)

// Outcomes lists them all.
func Outcomes() []string {
	return []string{OutcomeCreated, OutcomeUpdated, OutcomeExists, OutcomeDeleted, OutcomeGone, OutcomeTerminal, OutcomeExcluded, OutcomeUnsupported, OutcomeError}
}

// view is what is known of one Pod.
type view struct {
	pod     *corev1.Pod
	node    translate.Node
	objects []*Object // its requests; at most one, unless something went wrong
}

func (k *Keeper) view(uid types.UID) view {
	k.mu.RLock()
	defer k.mu.RUnlock()
	v := view{pod: k.pods[uid]}
	if v.pod != nil && v.pod.Spec.NodeName != "" {
		v.node.Object = k.nodes[v.pod.Spec.NodeName]
		v.node.Unmanaged = v.node.Object != nil && k.Unmanaged.Matches(labelSet(v.node.Object.Labels))
	}
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

// look brings the request of one Pod to what it should be.
func (k *Keeper) look(ctx context.Context, uid types.UID) (outcome string, err error) {
	v := k.view(uid)
	if v.pod == nil {
		return k.withdraw(ctx, uid, v, OutcomeGone)
	}
	switch translate.Why(v.pod, v.node, k.ExcludeNamespaces[v.pod.Namespace]) {
	case translate.Terminal:
		return k.withdraw(ctx, uid, v, OutcomeTerminal)
	case translate.Leaving:
		return k.withdraw(ctx, uid, v, OutcomeGone)
	case translate.Excluded:
		return k.withdraw(ctx, uid, v, OutcomeExcluded)
	}
	r := translate.Spec(v.pod, v.node.Object, k.Defaults)
	k.tell(v.pod, r)
	if r.Verdict == translate.Unsupported {
		return k.withdraw(ctx, uid, v, OutcomeUnsupported)
	}
	want := wanted(v.pod, r.Reduced)
	want.Spec = r.Spec
	have := keep(v.objects, want.Name)
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
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, errForeign) { // somebody has to do something
		k.Note(notes.Note{About: subject(v.pod), Warning: true, Reason: "CapacityRequestRefused", Message: refusal(err)})
	}
	return outcome, err
}

var errForeign = errors.New("delete it, or its label if it is to stay for this Pod")

// refusal is what the owner of a Pod is told.
func refusal(err error) string {
	if errors.Is(err, errForeign) {
		return err.Error()
	}
	return "the API server refuses the CapacityRequest, so what BigFleet knows of this Pod is missing or old: " + err.Error()
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
	delete(k.objects[uid], types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	if len(k.objects[uid]) == 0 {
		delete(k.objects, uid)
	}
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
		return k.meet(ctx, uid, want)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return OutcomeGone, nil // the Pod goes with its namespace
	}
	return OutcomeError, err
}

// meet handles an object that has our name already: ours if it is for the same Pod (OP-15.3).
func (k *Keeper) meet(ctx context.Context, uid types.UID, want *v1alpha1.CapacityRequest) (string, error) {
	var live Object
	if err := k.Client.Get(ctx, client.ObjectKeyFromObject(want), &live); err != nil {
		return OutcomeError, err
	}
	if got := live.Labels[v1alpha1.LabelOwnedByPod]; got != string(uid) {
		return OutcomeError, fmt.Errorf("CapacityRequest %s/%s belongs to another Pod, for its label %s is %q and not %q: %w",
			live.Namespace, live.Name, v1alpha1.LabelOwnedByPod, got, uid, errForeign)
	}
	if live.DeletionTimestamp != nil {
		return OutcomeError, errors.New("the old CapacityRequest of the same name is still being deleted")
	}
	k.wrote(uid, &live)
	return k.update(ctx, uid, &live, want)
}

// update sends one merge patch if the request does not say what it should (OP-15.5).
func (k *Keeper) update(ctx context.Context, uid types.UID, have *Object, want *v1alpha1.CapacityRequest) (string, error) {
	if have.says(want) {
		return OutcomeExists, nil
	}
	patch, err := difference(have, want)
	if err != nil {
		return OutcomeError, err
	}
	after := have.DeepCopyObject().(*Object)
	if err := k.Client.Patch(ctx, after, client.RawPatch(types.MergePatchType, patch)); err != nil {
		if apierrors.IsNotFound(err) {
			_ = k.delete(ctx, uid, have) // what the cache says is over
			return OutcomeError, errors.New("the CapacityRequest is gone; it is made again")
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
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	if k.objects[uid][name] != nil {
		k.objects[uid][name] = o
		return
	}
	k.created[uid] = o
}

func object(want *v1alpha1.CapacityRequest) (*Object, error) {
	spec, err := json.Marshal(want.Spec)
	if err != nil {
		return nil, err
	}
	return &Object{ObjectMeta: *want.ObjectMeta.DeepCopy(), Spec: spec}, nil
}

// difference is the merge patch from what is there to what should be: spec, label and the note of reductions. It touches
// no label and no annotation of others.
func difference(have *Object, want *v1alpha1.CapacityRequest) ([]byte, error) {
	spec, err := json.Marshal(want.Spec)
	if err != nil {
		return nil, err
	}
	if have.Spec != nil {
		if spec, err = jsonpatch.CreateMergePatch(have.Spec, spec); err != nil {
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

// tell counts what has no effect and tells the owner what was reduced, once for each form of a Pod.
func (k *Keeper) tell(p *corev1.Pod, r translate.Result) {
	if len(r.Ignored)+len(r.Reduced)+len(r.Faults) == 0 {
		return
	}
	text := strings.Join(r.Ignored, "\x00") + "\x01" + strings.Join(r.Reduced, "\x00") + "\x01" + strings.Join(r.Faults, "\x00")
	sum := maphash.String(seed, text)
	k.mu.Lock()
	same := k.counted[p.UID] == sum
	k.counted[p.UID] = sum
	k.mu.Unlock()
	if same {
		return
	}
	for _, kind := range r.Ignored {
		k.Unsupported.WithLabelValues(kind).Inc()
	}
	if len(r.Reduced) > 0 {
		k.Note(notes.Note{About: subject(p), Warning: r.Verdict == translate.Unsupported, Reason: "CapacityReduced", Message: strings.Join(r.Reduced, "; ")})
	}
	if len(r.Faults) > 0 {
		k.Note(notes.Note{About: subject(p), Warning: true, Reason: "PenaltyUnreadable", Message: strings.Join(r.Faults, "; ")})
	}
}

var seed = maphash.MakeSeed() // only to tell texts apart within this process

func subject(p *corev1.Pod) notes.Subject {
	return notes.Subject{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}
