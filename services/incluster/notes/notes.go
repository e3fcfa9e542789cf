// Package notes writes Kubernetes events, where users look first: `kubectl describe`.
//
// An event is a courtesy. It is written at most once per object and reason in a while, within a budget for the whole
// process, in the background, and is dropped and counted when the queue is full or the API server refuses it: nothing
// ever waits for an event, and nothing depends on one.
//
// Writer.Note never blocks. Start at New; Run writes until its context ends.
package notes

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

// Note is one event.
type Note struct {
	About           Subject
	Warning         bool
	Reason, Message string
}

// Config of a Writer.
type Config struct {
	Client    client.Client // required
	Component string        // required: who says it
	Quiet     time.Duration // 0 means 5 min
	Log       *slog.Logger  // required
	Dropped   func()        // hears of each event that was not written; may be nil
	// UID finds the uid of a subject that was named without one, empty if it is not known; may be nil. `kubectl describe` looks for
	// events by uid, so one without it is in lists alone.
	UID func(Subject) types.UID
}

// Writer writes events.
type Writer struct {
	Config
	queue chan Note
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
		return nil, errors.New("notes: Client, Component and Log are required")
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
	return &Writer{Config: c, queue: make(chan Note, queueMax), last: map[key]time.Time{}}, nil
}

// Note queues an event, unless the same was said a short while ago.
func (w *Writer) Note(n Note) {
	k, now := key{n.About.UID, n.About.Kind + "/" + n.About.Namespace + "/" + n.About.Name, n.Reason}, time.Now()
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
			if err := w.Client.Create(ctx, w.event(n)); err != nil && ctx.Err() == nil {
				w.Dropped()
				w.Log.Debug("an event was not written", "reason", n.Reason, "about", n.About.Name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
	}
}

func (w *Writer) event(n Note) *corev1.Event {
	now := metav1.Now()
	if n.About.UID == "" {
		n.About.UID = w.UID(n.About)
	}
	namespace := n.About.Namespace
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
	name := n.About.Name
	if len(name) > 220 {
		name = name[:220]
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.Trim(name, ".-") + "." + strings.ToLower(rand.Text()[:16])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: n.About.APIVersion, Kind: n.About.Kind, Namespace: n.About.Namespace, Name: n.About.Name, UID: n.About.UID,
		},
		Reason: n.Reason, Message: n.Message, Type: kind,
		Source: corev1.EventSource{Component: w.Component}, ReportingController: w.Component,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
