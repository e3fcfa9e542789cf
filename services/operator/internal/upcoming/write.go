package upcoming

import (
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// errChanged means that the object was not as it was thought to be; what is known is corrected, and it is worth trying
// again at once.
var errChanged = errors.New("the object was changed meanwhile")

func retryable(err error) bool { return errors.Is(err, errChanged) || apierrors.IsConflict(err) }

// write brings the object of one machine to what it should be.
func (w *Writer) write(ctx context.Context, id string) error {
	w.mu.Lock()
	e := w.entries[id]
	if e == nil {
		w.mu.Unlock()
		return nil
	}
	if left := time.Until(e.held); left > 0 && e.written != nil && len(e.waiters) == 0 && (w.passes(id, e.stage.phase) || w.spares(e.stage)) {
		w.mu.Unlock()
		w.queue.AddAfter(id, left)
		return nil
	}
	s, frame, written, arrived, waiters := e.stage, e.frame, e.written, e.arrived, e.waiters
	e.arrived, e.waiters = time.Time{}, nil
	w.mu.Unlock()

	after, err := w.converge(ctx, e, s, frame, written)
	gone, err := w.wrote(e, s, after, err, arrived, waiters)
	if gone {
		w.Machines.Forget(id) // notifies others, which may ask us
	}
	return err
}

// wrote notes how an attempt ended. gone means that nothing is left to be known of the machine.
func (w *Writer) wrote(e *entry, s stage, after *v1alpha1.UpcomingNode, err error, arrived time.Time, waiters []chan struct{}) (gone bool, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && s.gone && e.written != nil && e.written.UID != "" {
		w.removed[e.written.UID] = time.Now()
		delete(w.objects, Name(e.id))
	}
	if after == nil || newerThan(after, e.written) {
		e.written = after
	}
	if err != nil {
		if e.arrived.IsZero() {
			e.arrived = arrived
		}
		e.waiters = append(e.waiters, waiters...)
		return false, err
	}
	for _, done := range waiters {
		close(done)
	}
	if !arrived.IsZero() {
		w.Instruments.NodeStateUpdate.WithLabelValues(string(s.phase)).Observe(time.Since(arrived).Seconds())
	}
	if gone = s.gone && e.stage.gone; gone {
		delete(w.entries, e.id)
	}
	return gone, nil
}

// converge returns the object as the API server has it after the attempt; nil when it has none.
func (w *Writer) converge(ctx context.Context, e *entry, s stage, frame *pb.NodeStateUpdate, written *v1alpha1.UpcomingNode) (*v1alpha1.UpcomingNode, error) {
	if s.gone && (written == nil || s.phase != v1alpha1.NodeDrained) {
		return w.remove(ctx, e.id, written)
	}
	if written == nil {
		fresh := &v1alpha1.UpcomingNode{ObjectMeta: metav1.ObjectMeta{Name: Name(e.id)}}
		w.spec(fresh, e.id, frame)
		began := time.Now()
		err := w.Client.Create(ctx, fresh)
		w.took(time.Since(began))
		if apierrors.IsAlreadyExists(err) {
			w.count("create", "conflict")
			var live v1alpha1.UpcomingNode
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(fresh), &live); err != nil {
				return nil, errors.Join(errChanged, err)
			}
			return &live, errChanged
		}
		if err != nil {
			w.count("create", "error")
			return nil, err
		}
		w.count("create", "success")
		if (w.passes(e.id, s.phase) || w.spares(s)) && fresh.Status.Phase != "" {
			w.queue.AddAfter(e.id, w.pause(s.phase)) // the schema's default shows it on its way: the next phase comes by itself
			return fresh, nil
		}
		written = fresh
	}
	want := written.DeepCopy()
	w.spec(want, e.id, frame)
	if !equality.Semantic.DeepEqual(want.Spec, written.Spec) {
		after, err := w.patch(ctx, "spec_update", written, want, false)
		if err != nil {
			return after, err
		}
		written = after
		want = written.DeepCopy()
	}
	w.status(want, e, s, frame)
	if !equality.Semantic.DeepEqual(want.Status, written.Status) {
		after, err := w.patch(ctx, "status_update", written, want, true)
		if err != nil {
			return after, err
		}
		written = after
	} else {
		w.count("status_update", "noop")
	}
	if s.gone {
		return w.remove(ctx, e.id, written)
	}
	return written, nil
}

// patch sends the difference without a resource version (OP-12.6).
func (w *Writer) patch(ctx context.Context, op string, from, to *v1alpha1.UpcomingNode, status bool) (*v1alpha1.UpcomingNode, error) {
	out := to.DeepCopy()
	began := time.Now()
	var err error
	if status {
		err = w.Client.Status().Patch(ctx, out, client.MergeFrom(from))
	} else {
		err = w.Client.Patch(ctx, out, client.MergeFrom(from))
	}
	w.took(time.Since(began))
	switch {
	case err == nil:
		w.count(op, "success")
		return out, nil
	case apierrors.IsNotFound(err):
		w.count(op, "conflict")
		return nil, errChanged
	case apierrors.IsConflict(err):
		w.count(op, "conflict")
	default:
		w.count(op, "error")
	}
	return from, err
}

func (w *Writer) remove(ctx context.Context, id string, written *v1alpha1.UpcomingNode) (*v1alpha1.UpcomingNode, error) {
	err := w.Client.Delete(ctx, &v1alpha1.UpcomingNode{ObjectMeta: metav1.ObjectMeta{Name: Name(id)}})
	switch {
	case err == nil:
		w.count("delete", "success")
	case apierrors.IsNotFound(err):
		w.count("delete", "noop")
	default:
		w.count("delete", "error")
		return written, err
	}
	return nil, nil
}

func (w *Writer) count(op, outcome string) {
	w.Instruments.UpcomingWrites.WithLabelValues(op, outcome).Inc()
}

// spec fills what the shard says of the node to come (OP-12.3).
func (w *Writer) spec(o *v1alpha1.UpcomingNode, id string, m *pb.NodeStateUpdate) {
	o.Spec.MachineID = id
	if o.Spec.Resources == nil {
		o.Spec.Resources = corev1.ResourceList{}
	}
	if m == nil {
		return
	}
	o.Spec.Labels = maps.Clone(m.Labels)
	o.Spec.Resources = w.resources(m.Resources)
	o.Spec.Taints = nil
	for _, t := range m.Taints {
		o.Spec.Taints = append(o.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	o.Spec.CapacityType, o.Spec.PricePerHour = capacityTypes[m.CapacityType], v1alpha1.Dollars(m.PricePerHour)
}

var capacityTypes = map[pb.CapacityType]string{
	pb.CapacityType_CAPACITY_TYPE_BARE_METAL: "BareMetal", pb.CapacityType_CAPACITY_TYPE_RESERVED: "Reserved",
	pb.CapacityType_CAPACITY_TYPE_ON_DEMAND: "OnDemand", pb.CapacityType_CAPACITY_TYPE_SPOT: "Spot",
}

func (w *Writer) resources(r *pb.Resources) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, text := range r.GetResources() {
		q, err := resource.ParseQuantity(text)
		if err != nil || name == "" {
			w.Instruments.QuantitiesUnreadable.Inc()
			continue
		}
		out[corev1.ResourceName(name)] = q
	}
	return out
}
