// Package events writes Kubernetes events, which users see in `kubectl describe`.
//
// Events are best effort. An event is written in the background, at most once per object and reason in five minutes, within a
// rate for the whole process. It is dropped and counted when the queue is full or the API server refuses it. Nothing waits
// for an event or depends on one.
//
// Writer.Record never blocks. Start at New; Run writes until its context ends.
package events

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	last  map[key]time.Time
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
	return &Writer{Config: c, queue: make(chan Event, queueMax), last: map[key]time.Time{}}, nil
}

// Record queues an event, unless one of the same object and reason was queued a short while ago.
func (w *Writer) Record(n Event) {
	k, now := key{n.Regarding.UID, n.Regarding.Kind + "/" + n.Regarding.Namespace + "/" + n.Regarding.Name, n.Reason}, time.Now()
	w.mu.Lock()
	if t, ok := w.last[k]; ok && now.Sub(t) < w.Quiet {
		w.mu.Unlock()
		return
	}
	if len(w.last) >= rememberedMax {
		clear(w.last)
	}
	w.last[k] = now
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
			if err := w.Client.Create(ctx, w.object(n)); err != nil && ctx.Err() == nil {
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

func (w *Writer) object(n Event) *corev1.Event {
	now := metav1.Now()
	if n.Regarding.UID == "" {
		n.Regarding.UID = w.UID(n.Regarding)
	}
	namespace := n.Regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // the only place the API server takes them, with kube-system
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
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.Trim(name, ".-") + "." + strings.ToLower(rand.Text()[:16])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: n.Regarding.APIVersion, Kind: n.Regarding.Kind, Namespace: n.Regarding.Namespace, Name: n.Regarding.Name, UID: n.Regarding.UID,
		},
		Reason: n.Reason, Message: n.Message, Type: kind,
		Source: corev1.EventSource{Component: w.Component}, ReportingController: w.Component,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
