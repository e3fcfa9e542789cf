package session

import (
	"context"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// write sends what is in the outbox, one frame at a time, and ends when it is empty. At most one of a session runs; it is
// the only goroutine that touches the sending side.
func (h *Handler) write(l *live) {
	// A write that takes too long ends the session (SHARD-9.6).
	slow := time.AfterFunc(h.cfg.SlowAfter, func() {
		h.cfg.Observe.SlowClosed()
		l.cancel(errSlow)
	})
	slow.Stop()
	for {
		f, ok := l.outbox.Next()
		if !ok {
			return
		}
		if l.ctx.Err() != nil {
			continue // the rest is dropped
		}
		slow.Reset(h.cfg.SlowAfter)
		err := l.stream.Send(f.Render())
		slow.Stop()
		if err != nil {
			l.cancel(errEnded)
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
	begin, ok := l.outbox.Put(f)
	if begin {
		go h.write(l)
	}
	if !ok {
		h.cfg.Observe.SlowClosed()
		l.cancel(errSlow)
	}
	return ok
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
