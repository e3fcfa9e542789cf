package kubesim

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	watchTimeoutDefault = 30 * time.Minute
	bookmarkEvery       = time.Minute
)

// watch streams changes as an API server does: one JSON object a line.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, f Filter) error {
	q := r.URL.Query()
	since, initial, err := startOf(q.Get("resourceVersion"), q.Get("sendInitialEvents"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), watchTimeout(q.Get("timeoutSeconds")))
	defer cancel()
	watcher, first, at, err := s.store.Watch(ctx, t.resource.GroupVersionResource, f, since, initial)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := streamOf{w: w, r: r, t: t, enc: json.NewEncoder(w), bookmarks: q.Get("allowWatchBookmarks") == "true"}
	streaming := q.Get("sendInitialEvents") == "true"
	if streaming && first == 0 {
		out.bookmark(at, true)
	}
	out.flush()
	beat := time.NewTicker(bookmarkEvery)
	defer beat.Stop()
	for {
		select {
		case e, open := <-watcher.Events:
			if !open {
				return nil
			}
			if out.event(e) != nil {
				return nil // the client went away
			}
			at = max(at, e.Version)
			if first--; first == 0 && streaming {
				out.bookmark(at, true)
			}
			if len(watcher.Events) == 0 {
				out.flush()
			}
		case <-beat.C:
			if out.bookmarks {
				out.bookmark(at, false)
				out.flush()
			}
		}
	}
}

// startOf says from which version a watch starts, and whether it starts with all objects instead.
func startOf(version, sendInitial string) (since uint64, initial bool, err error) {
	if version == "" || version == "0" {
		return 0, sendInitial != "false", nil
	}
	since, err = strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, false, apierrors.NewBadRequest("resourceVersion: " + err.Error())
	}
	return since, sendInitial == "true", nil
}

func watchTimeout(seconds string) time.Duration {
	if n, err := strconv.Atoi(seconds); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return watchTimeoutDefault
}

type streamOf struct {
	w         http.ResponseWriter
	r         *http.Request
	t         target
	enc       *json.Encoder
	bookmarks bool
}

func (s *streamOf) event(e Event) error {
	return s.enc.Encode(map[string]any{"type": string(e.Type), "object": shape(s.r, e.Object)})
}

// bookmark names the version the client has seen. The end of a streaming list is marked as clients expect it.
func (s *streamOf) bookmark(version uint64, endOfList bool) {
	o := &Object{Object: map[string]any{}}
	o.SetGroupVersionKind(s.t.resource.gvk())
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	if endOfList {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	_ = s.event(Event{Type: watch.Bookmark, Object: o})
}

func (s *streamOf) flush() {
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}
