package session

import (
	"context"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// write sends what is in the outbox, one frame at a time. It is the only goroutine that touches the sending side.
func (h *Handler) write(ctx context.Context, s *stream, l *live) {
	watch := time.NewTicker(max(h.cfg.SlowAfter/4, time.Millisecond))
	defer watch.Stop()
	slow := make(chan struct{})
	defer close(slow)
	go h.watch(slow, watch.C, l)
	for {
		f, ok := l.outbox.Next()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-l.outbox.Wake():
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		l.writing.Store(time.Now().UnixNano())
		err := s.Send(f.Render())
		l.writing.Store(0)
		if err != nil {
			l.cancel(errEnded)
			return
		}
	}
}

// watch ends the session when one write takes too long (SHARD-9.6).
func (h *Handler) watch(done <-chan struct{}, tick <-chan time.Time, l *live) {
	for {
		select {
		case <-done:
			return
		case now := <-tick:
			if at := l.writing.Load(); at != 0 && now.UnixNano()-at > int64(h.cfg.SlowAfter) {
				h.cfg.Observe.SlowClosed()
				l.cancel(errSlow)
				return
			}
		}
	}
}

// awaitWriter returns when the writer has stopped. One that is blocked in a write is freed by resetting the stream.
func (h *Handler) awaitWriter(done <-chan struct{}, t *transport, why error) {
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	select {
	case <-done:
		return
	case <-patience.C:
	}
	if t != nil {
		_ = t.ctl.SetWriteDeadline(time.Unix(1, 0))
	}
	<-done
}

// put queues a frame for a session, which ends as a slow consumer when it does not fit.
func (h *Handler) put(cluster string, number int64, f Frame) bool {
	l := h.current(cluster, number)
	if l == nil {
		return false
	}
	if !l.outbox.Put(f) {
		h.cfg.Observe.SlowClosed()
		l.cancel(errSlow)
		return false
	}
	return true
}

// Apply carries out an effect that concerns a session and reports whether it was one. It never blocks.
func (h *Handler) Apply(e core.Effect) bool {
	switch e := e.(type) {
	case core.SendAck:
		h.put(e.Cluster, e.Session, h.ackFrame(e))
	case core.PullBootstrap:
		h.cfg.Blobs.Expect(e.Request, e.Cluster)
		if !h.put(e.Cluster, e.Session, pullFrame(e)) {
			go h.control.Push(context.Background(), core.BootstrapAnswered{Request: e.Request, Cluster: e.Cluster, Session: e.Session, Undeliverable: true})
		}
	case core.SendReclaim:
		h.put(e.Cluster, e.Session, reclaimFrame(e))
	case core.SendNodeState:
		h.put(e.Cluster, e.Session, nodeFrame(e))
	case core.SendHint:
		h.put(e.Cluster, e.Session, hintFrame(e))
	case core.SendNeedStatus:
		h.put(e.Cluster, e.Session, statusFrame(e))
	case core.DropBlob:
		h.cfg.Blobs.Drop(e.Request)
	case core.CloseSession:
		h.Close(e)
	default:
		return false
	}
	return true
}
