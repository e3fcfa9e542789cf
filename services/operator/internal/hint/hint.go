// Package hint keeps one AvailableCapacity per shape that the shard gives a hint about.
//
// A hint says what could be had; it reserves nothing. The newest hint of a shape replaces the one before, a hint that
// changes nothing is not written, and writes are paced, because hints come in crowds and are worth little each. Shapes
// that a session does not mention are deleted a while after it opened; shapes with nothing to be had a while after that
// was said.
//
// Update never blocks. Start at Writer.Update. Tests cite the operator specification as OP-n.n.
package hint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
)

const (
	parallel      = 4
	perSecond     = 10               // objects written (OP-13.2)
	unheardExpiry = 5 * time.Minute  // after a session opened (OP-13.4)
	noneExpiry    = 10 * time.Minute // after a shape was said to have nothing
	sweepEvery    = 30 * time.Second
	shapesMax     = 10_000 // beyond it new shapes are ignored; the shard gives one hint per demanded shape
)

// Config is what a Writer needs.
type Config struct {
	Client      client.Client            // required
	Instruments *instruments.Instruments // required
	Log         *slog.Logger             // required
}

// Writer writes AvailableCapacities.
type Writer struct {
	Config
	wake chan struct{}

	mu      sync.Mutex
	shapes  map[string]*shape // by object name
	objects map[string]*v1alpha1.AvailableCapacity
	dirty   []string // names to write, first come first served
	session uint64
	opened  time.Time
}

type shape struct {
	want    v1alpha1.AvailableCapacitySpec
	queued  bool
	changed bool // the object says what is wanted, but not yet since when
	session uint64
	none    time.Time // since when there is nothing; zero: there is something
}

// New checks the configuration.
func New(c Config) (*Writer, error) {
	if c.Client == nil || c.Instruments == nil || c.Log == nil {
		return nil, errors.New("hint: Client, Instruments and Log are required")
	}
	return &Writer{Config: c, wake: make(chan struct{}, 1), shapes: map[string]*shape{}, objects: map[string]*v1alpha1.AvailableCapacity{}}, nil
}

// Name is the name of the object of a shape (OP-13.1).
func Name(supersedesKey string) string {
	h := sha256.Sum256([]byte(supersedesKey))
	return "ac-" + hex.EncodeToString(h[:16])
}

// Opened says that a session opened.
func (w *Writer) Opened() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session++
	w.opened = time.Now()
}

// Update takes a hint. One without a key is ignored.
func (w *Writer) Update(m *pb.AvailableCapacityUpdate) {
	if m.SupersedesKey == "" {
		w.Instruments.UnknownFrames.WithLabelValues("hint_without_key").Inc()
		return
	}
	want := w.spec(m)
	name := Name(m.SupersedesKey)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.shapes[name]
	if s == nil {
		if len(w.shapes) >= shapesMax {
			w.Instruments.UnknownFrames.WithLabelValues("too_many_hints").Inc()
			return
		}
		s = &shape{}
		w.shapes[name] = s
	}
	s.want, s.session = want, w.session
	switch {
	case want.Availability != v1alpha1.AvailabilityNone:
		s.none = time.Time{}
	case s.none.IsZero():
		s.none = time.Now()
	}
	w.enqueue(name, s)
}

func (w *Writer) enqueue(name string, s *shape) {
	if s.queued {
		return
	}
	s.queued = true
	w.dirty = append(w.dirty, name)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

var confidence = map[pb.AvailableCapacityUpdate_Confidence]v1alpha1.Availability{
	pb.AvailableCapacityUpdate_CONFIDENCE_LOW: v1alpha1.AvailabilityLow, pb.AvailableCapacityUpdate_CONFIDENCE_MEDIUM: v1alpha1.AvailabilityMedium,
	pb.AvailableCapacityUpdate_CONFIDENCE_HIGH: v1alpha1.AvailabilityHigh,
}

var operators = map[pb.NodeSelectorRequirement_Operator]corev1.NodeSelectorOperator{
	pb.NodeSelectorRequirement_OPERATOR_IN: corev1.NodeSelectorOpIn, pb.NodeSelectorRequirement_OPERATOR_NOT_IN: corev1.NodeSelectorOpNotIn,
	pb.NodeSelectorRequirement_OPERATOR_EXISTS: corev1.NodeSelectorOpExists, pb.NodeSelectorRequirement_OPERATOR_DOES_NOT_EXIST: corev1.NodeSelectorOpDoesNotExist,
}

func (w *Writer) spec(m *pb.AvailableCapacityUpdate) v1alpha1.AvailableCapacitySpec {
	out := v1alpha1.AvailableCapacitySpec{
		Resources: corev1.ResourceList{}, AvailableCount: max(0, m.AvailableCount), Availability: v1alpha1.AvailabilityNone, Cost: cost(m.CostPerHour),
		PricePerHour: v1alpha1.Dollars(m.CostPerHour),
	}
	if a, ok := confidence[m.Confidence]; ok {
		out.Availability = a
	}
	for _, r := range m.Requirements {
		if op, ok := operators[r.Operator]; ok { // Same is not for the CRD
			values := r.Values
			if c := r.Comparison; c != nil && op == corev1.NodeSelectorOpExists {
				if op, values = corev1.NodeSelectorOpGt, []string{strconv.FormatInt(c.Bound, 10)}; c.Less {
					op = corev1.NodeSelectorOpLt
				}
			}
			out.Requirements = append(out.Requirements, corev1.NodeSelectorRequirement{Key: r.Key, Operator: op, Values: values})
		}
	}
	for name, text := range m.GetResources().GetResources() {
		q, err := resource.ParseQuantity(text)
		if err != nil || name == "" {
			w.Instruments.QuantitiesUnreadable.Inc()
			continue
		}
		out.Resources[corev1.ResourceName(name)] = q
	}
	return out
}

// cost writes dollars per hour as a quantity with a millionth of a dollar as its smallest step; "0" is unknown.
func cost(dollars float64) resource.Quantity {
	if math.IsNaN(dollars) || dollars <= 0 || dollars > 1e9 {
		return resource.MustParse("0")
	}
	return *resource.NewScaledQuantity(int64(math.Round(dollars*1e6)), resource.Micro)
}

// SetObject takes the present form of an object from the cache.
func (w *Writer) SetObject(o *v1alpha1.AvailableCapacity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[o.Name] = o
}

// DeleteObject takes the end of an object from the cache.
func (w *Writer) DeleteObject(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, name)
	if s := w.shapes[name]; s != nil {
		w.enqueue(name, s)
	}
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	places := make(chan struct{}, parallel)
	pace := time.NewTicker(time.Second / perSecond)
	defer pace.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		name := w.next()
		if name == "" {
			select {
			case <-ctx.Done():
				return nil
			case <-w.wake:
			case <-sweep.C:
				w.sweep(ctx, time.Now())
			}
			continue
		}
		places <- struct{}{}
		workers.Go(func() {
			w.write(ctx, name)
			<-places
		})
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
	}
}

// next takes the next object that differs from its hint.
func (w *Writer) next() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.dirty) > 0 {
		name := w.dirty[0]
		w.dirty = w.dirty[1:]
		s := w.shapes[name]
		if s == nil {
			continue
		}
		s.queued = false
		if o := w.objects[name]; o != nil && !s.changed && o.Status.UpdatedAt != nil && equality.Semantic.DeepEqual(o.Spec, s.want) {
			continue
		}
		return name
	}
	return ""
}

func (w *Writer) write(ctx context.Context, name string) {
	w.mu.Lock()
	s := w.shapes[name]
	if s == nil {
		w.mu.Unlock()
		return
	}
	want, have, changed := s.want, w.objects[name], s.changed
	w.mu.Unlock()
	after, wrote, err := w.converge(ctx, name, have, want)
	if changed = changed || wrote; err == nil && (changed || after.Status.UpdatedAt == nil) {
		after, err = w.noteChange(ctx, after)
		changed = err != nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.shapes[name]; s != nil {
		s.changed = changed
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("an AvailableCapacity could not be written", "name", name, "err", err)
		time.AfterFunc(time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if s := w.shapes[name]; s != nil {
				w.enqueue(name, s)
			}
		})
		return
	}
	if after != nil {
		w.objects[name] = after
	}
}

// converge brings the object to what is wanted. wrote says that it had to.
func (w *Writer) converge(ctx context.Context, name string, have *v1alpha1.AvailableCapacity, want v1alpha1.AvailableCapacitySpec) (_ *v1alpha1.AvailableCapacity, wrote bool, _ error) {
	if have == nil {
		fresh := &v1alpha1.AvailableCapacity{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: want}
		err := w.Client.Create(ctx, fresh)
		if !apierrors.IsAlreadyExists(err) {
			return fresh, err == nil, err
		}
		have = &v1alpha1.AvailableCapacity{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, have); err != nil {
			return nil, false, err
		}
	}
	next := have.DeepCopy()
	next.Spec = want
	if equality.Semantic.DeepEqual(next.Spec, have.Spec) {
		return have, false, nil
	}
	err := w.Client.Patch(ctx, next, client.MergeFrom(have))
	if apierrors.IsNotFound(err) {
		return nil, false, errors.New("the object is gone; it is created again")
	}
	return next, err == nil, err
}

// noteChange records when the hint changed.
func (w *Writer) noteChange(ctx context.Context, o *v1alpha1.AvailableCapacity) (*v1alpha1.AvailableCapacity, error) {
	next := o.DeepCopy()
	next.Status.UpdatedAt = new(metav1.Now().Rfc3339Copy())
	err := w.Client.Status().Patch(ctx, next, client.MergeFrom(o))
	if apierrors.IsNotFound(err) {
		return nil, errors.New("the object is gone; it is created again")
	}
	return next, err
}

// sweep deletes objects of shapes that are not hinted at any more (OP-13.4).
func (w *Writer) sweep(ctx context.Context, now time.Time) {
	w.mu.Lock()
	unheard := w.session > 0 && now.Sub(w.opened) >= unheardExpiry
	var gone []string
	for name := range w.objects {
		s := w.shapes[name]
		stale := unheard && (s == nil || s.session != w.session)
		nothing := s != nil && !s.none.IsZero() && now.Sub(s.none) >= noneExpiry
		if stale || nothing {
			gone = append(gone, name)
			delete(w.shapes, name) // first, so that the end of the object is not taken for somebody else's deed
		}
	}
	w.mu.Unlock()
	for _, name := range gone {
		err := w.Client.Delete(ctx, &v1alpha1.AvailableCapacity{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil && !apierrors.IsNotFound(err) {
			w.Log.Warn("an AvailableCapacity could not be deleted", "name", name, "err", err)
			continue
		}
		w.mu.Lock()
		delete(w.objects, name)
		w.mu.Unlock()
	}
}
