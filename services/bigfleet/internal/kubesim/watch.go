package kubesim

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"strings"
)

// pendingMax bounds the changes that wait for one watcher. A watcher that falls behind is ended; clients list again.
const pendingMax = 10_000

// Filter selects objects. The zero Filter selects all.
type Filter struct {
	Namespace string
	Labels    labels.Selector
	Fields    fields.Selector
}

func (f Filter) matches(o *Object) bool {
	if f.Namespace != "" && o.GetNamespace() != f.Namespace {
		return false
	}
	if f.Labels != nil && !f.Labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	return f.Fields == nil || f.Fields.Matches(fieldsOf{o})
}

// fieldsOf reads any scalar path of an object, which is more than an API server selects by.
type fieldsOf struct{ o *Object }

func (f fieldsOf) Get(path string) string {
	v, _, _ := unstructured.NestedFieldNoCopy(f.o.Object, strings.Split(path, ".")...)
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

func (f fieldsOf) Has(path string) bool { return f.Get(path) != "" }

// Event is one change as a watcher sees it.
type Event struct {
	Type    watch.EventType
	Object  *Object
	Version uint64
}

// Watcher receives the changes of one resource that its filter selects. Events is closed when it ends or falls behind.
type Watcher struct {
	Events <-chan Event
	send   chan Event
	filter Filter
	ended  bool
}

// Watch follows changes after version. With initial it first sends every object as added, and then says through the
// returned count how many of the first events those are. It ends with ctx.
func (s *Store) Watch(ctx context.Context, gvr schema.GroupVersionResource, f Filter, version uint64, initial bool) (w *Watcher, first int, at uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(gvr)
	if err != nil {
		return nil, 0, 0, err
	}
	var backlog []Event
	if initial {
		for _, o := range t.list(f) {
			backlog = append(backlog, Event{watch.Added, o, s.version})
		}
	} else {
		if version < t.dropped {
			return nil, 0, 0, apierrors.NewResourceExpired(fmt.Sprintf("resourceVersion %d is older than the history kept: list again", version))
		}
		for _, c := range t.history {
			if e, ok := c.seenBy(f); ok && c.version > version {
				backlog = append(backlog, e)
			}
		}
	}
	send := make(chan Event, max(pendingMax, len(backlog)))
	for _, e := range backlog {
		send <- e
	}
	w = &Watcher{Events: send, send: send, filter: f}
	t.watchers[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.end(w)
	})
	return w, len(backlog), s.version, nil
}

func (t *table) end(w *Watcher) {
	if !w.ended {
		w.ended = true
		delete(t.watchers, w)
		close(w.send)
	}
}

// publish appends to the history and hands the change to the watchers. Called with the store's lock held.
func (t *table) publish(c change) {
	t.history = append(t.history, c)
	if over := len(t.history) - eventsMax; over > eventsMax/4 { // trimmed in steps, so that a change costs no copy
		t.dropped = t.history[over-1].version
		t.history = append([]change(nil), t.history[over:]...)
	}
	for w := range t.watchers {
		e, ok := c.seenBy(w.filter)
		if !ok {
			continue
		}
		select {
		case w.send <- e:
		default:
			t.end(w)
		}
	}
}

// seenBy translates a change for a filter: an object that stops matching is deleted for that watcher.
func (c change) seenBy(f Filter) (Event, bool) {
	now := c.kind != watch.Deleted && f.matches(c.object)
	before := c.before != nil && f.matches(c.before)
	switch {
	case now && before:
		return Event{watch.Modified, c.object, c.version}, true
	case now:
		return Event{watch.Added, c.object, c.version}, true
	case before:
		return Event{watch.Deleted, c.object, c.version}, true
	}
	return Event{}, false
}
