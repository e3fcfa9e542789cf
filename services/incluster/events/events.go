// Package events writes Kubernetes events, which users see in `kubectl describe`.
//
// Events are best effort. An event is written in the background, at most once per object and reason in five minutes, within a
// rate for the whole process. One that says the same again later is counted on the first, with its times, as kubelets do it.
// An event is dropped, and the drop counted, when the queue is full or the API server refuses it. Nothing waits for an event or
// depends on one.
//
// Writer.Record never blocks. Start at New; Run writes until its context ends.
package events

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	quietDefault  = 5 * time.Minute // between two events of one object and reason (OP-14.3)
	perSecond     = 10              // events a second (OP section 2)
	queueMax      = 1024            // 100 s of budget; more would be stale
	rememberedMax = 100_000         // pairs of object and reason; forgotten together when full
	messageMax    = 1024            // bytes, the API server's limit
)

// Subject is the object that an event is about.
type Subject struct {
	APIVersion, Kind, Namespace, Name string
	UID                               types.UID
}

// Event is one event.
type Event struct {
	Regarding       Subject
	Warning         bool
	Reason, Message string
}

// Config of a Writer.
type Config struct {
	Client    client.Client // required
	Component string        // required: reporting component
	Quiet     time.Duration // 0 means 5 min
	Log       *slog.Logger  // required
	Dropped   func()        // called for each event that was not written; may be nil
	// UID finds the uid of a subject that was given without one, or returns empty; may be nil. `kubectl describe` selects events
	// by uid, so an event without one appears in lists only.
	UID func(Subject) types.UID
}

// Writer writes events.
type Writer struct {
	Config
	queue chan Event
	mu    sync.Mutex
	last  map[key]lastEvent
}

// lastEvent is the last event of an object and reason.
type lastEvent struct {
	at      time.Time
	more    int32 // since it was written
	message string
	count   int32  // that the API server has
	name    string // of its object; empty: not written, or not known to be
}

type key struct {
	uid          types.UID
	name, reason string
}

// New returns a Writer.
func New(c Config) (*Writer, error) {
	if c.Client == nil || c.Component == "" || c.Log == nil {
		return nil, errors.New("events: Client, Component and Log are required")
	}
	if c.Quiet == 0 {
		c.Quiet = quietDefault
	}
	if c.Dropped == nil {
		c.Dropped = func() {}
	}
	if c.UID == nil {
		c.UID = func(Subject) types.UID { return "" }
	}
	return &Writer{Config: c, queue: make(chan Event, queueMax), last: map[key]lastEvent{}}, nil
}

// Record queues an event, unless one of the same object and reason was queued a short while ago.
func (w *Writer) Record(n Event) {
	k, now := keyOf(n), time.Now()
	w.mu.Lock()
	t, ok := w.last[k]
	if ok && now.Sub(t.at) < w.Quiet {
		if t.message == n.Message {
			t.more++
			w.last[k] = t
		}
		w.mu.Unlock()
		return
	}
	if len(w.last) >= rememberedMax {
		clear(w.last)
	}
	if t.message != n.Message {
		t = lastEvent{message: n.Message}
	}
	t.at = now
	w.last[k] = t
	w.mu.Unlock()
	select {
	case w.queue <- n:
	default:
		w.Dropped()
	}
}

// Run writes events until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	pace := time.NewTicker(time.Second / perSecond)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-w.queue:
			if err := w.write(ctx, n); err != nil && ctx.Err() == nil {
				w.Dropped()
				w.Log.Debug("an event was not written", "reason", n.Reason, "about", n.Regarding.Name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
	}
}

// write creates an event, or counts one that the API server still has.
func (w *Writer) write(ctx context.Context, n Event) error {
	k := keyOf(n)
	w.mu.Lock()
	t := w.last[k]
	w.mu.Unlock()
	if t.name != "" && t.message == n.Message {
		count := t.count + t.more + 1
		body, err := json.Marshal(map[string]any{"count": count, "lastTimestamp": metav1.Now()})
		if err != nil {
			return err
		}
		err = w.Client.Patch(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(n), Name: t.name}}, client.RawPatch(types.MergePatchType, body))
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) { // events end after an hour, and a role may be of an earlier release
			w.wrote(k, n.Message, t.name, count, err)
			return err
		}
	}
	o := w.object(n)
	err := w.Client.Create(ctx, o)
	w.wrote(k, n.Message, o.Name, 1, err)
	return err
}

// wrote notes what the API server has.
func (w *Writer) wrote(k key, message, name string, count int32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, ok := w.last[k]
	if !ok || err != nil || t.message != message {
		return
	}
	t.name, t.count, t.more = name, count, 0
	w.last[k] = t
}

func keyOf(n Event) key {
	return key{n.Regarding.UID, n.Regarding.Kind + "/" + n.Regarding.Namespace + "/" + n.Regarding.Name, n.Reason}
}

func namespaceOf(n Event) string {
	if n.Regarding.Namespace == "" {
		return metav1.NamespaceDefault // the only place the API server takes them, with kube-system
	}
	return n.Regarding.Namespace
}

func (w *Writer) object(n Event) *corev1.Event {
	now := metav1.Now()
	if n.Regarding.UID == "" {
		n.Regarding.UID = w.UID(n.Regarding)
	}
	kind := corev1.EventTypeNormal
	if n.Warning {
		kind = corev1.EventTypeWarning
	}
	if len(n.Message) > messageMax {
		n.Message = strings.ToValidUTF8(n.Message[:messageMax-3], "") + "..."
	}
	name := n.Regarding.Name
	if len(name) > 220 {
		name = name[:220]
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(n), Name: strings.Trim(name, ".-") + "." + strings.ToLower(rand.Text()[:16])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: n.Regarding.APIVersion, Kind: n.Regarding.Kind, Namespace: n.Regarding.Namespace, Name: n.Regarding.Name, UID: n.Regarding.UID,
		},
		Reason: n.Reason, Message: n.Message, Type: kind,
		Source: corev1.EventSource{Component: w.Component}, ReportingController: w.Component,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
