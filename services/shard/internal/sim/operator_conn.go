package sim

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// conn is one stream between an operator and a process. Frames in each direction arrive in order, or not at all.
type conn struct {
	w       *world
	o       *operator
	p       *process
	session int64
	client  bool // the operator thinks that it lives
	server  bool // the process does
	upAt    int64
	downAt  int64
	out     outgoing

	coalesced, dropped int64 // as last counted
}

// toShard delivers an event in order, unless the stream is gone.
func (cn *conn) toShard(e core.Event) {
	if cn == nil || !cn.client {
		return
	}
	d := cn.w.delay()
	if cn.w.roll(FrameSlow) {
		d += cn.w.net.between(second, minute)
	}
	cn.upAt = max(cn.upAt, cn.w.now+d, cn.o.cutUntil)
	cn.w.at(cn.upAt, func() {
		r, isRollup := e.(core.RollupArrived)
		if cn.p.dead || cn.session == 0 || !cn.server && !isRollup { // a roll-up that is being decoded outlives its stream (SHARD-8.4)
			return
		}
		if isRollup {
			cn.p.arrival++
			r.Session, r.Arrival = cn.session, cn.p.arrival
			e = r
		}
		if b, ok := e.(core.BootstrapAnswered); ok && b.Error == "" {
			cn.p.blobs[b.Request] = blob{works: b.Digest != brokenBlob}
		}
		if !isRollup {
			cn.p.step(withSession(e, cn.session))
			return
		}
		cn.decoded(e, RollupLate)
		if cn.w.roll(RollupTwice) {
			cn.w.after(cn.w.net.between(millisecond, 20*second), func() { cn.decoded(e, RollupLate) })
		}
	})
}

// decoded brings a roll-up to the core, at once or late.
func (cn *conn) decoded(e core.Event, late Fault) {
	if !cn.w.roll(late) {
		cn.p.step(e)
		return
	}
	cn.w.after(cn.w.net.between(millisecond, 20*second), func() { cn.p.step(e) })
}

func withSession(e core.Event, session int64) core.Event {
	switch e := e.(type) {
	case core.BootstrapAnswered:
		e.Session = session
		return e
	case core.ReclaimAcked:
		e.Session = session
		return e
	case core.NodeReported:
		e.Session = session
		return e
	case core.DrainReported:
		e.Session = session
		return e
	case core.UnplacedReported:
		e.Session = session
		return e
	}
	return e
}

// endServer ends the process's half of a stream. What was written may still arrive.
func (cn *conn) endServer() {
	cn.server = false
	cn.out.held = nil
	cn.out.box.Close()
}

// serverGone is what the operator's side sees some time after the process is gone.
func (cn *conn) serverGone() {
	cn.endServer()
	wait := cn.w.delay()
	if cn.w.roll(DeafOperator) {
		wait += cn.w.net.between(second, 40*second) // half open: only a ping finds out
	}
	cn.w.after(wait, cn.clientGone)
}

// serverCloses ends the stream from the shard's side.
func (cn *conn) serverCloses(reason string) {
	if !cn.server {
		return
	}
	cn.serverGone()
	cn.closed(reason)
}

// closed tells the core that the stream ended, as the shell does when its handler returns.
func (cn *conn) closed(reason string) {
	p := cn.p
	if p.conns[cn.o.c.name] == cn {
		delete(p.conns, cn.o.c.name)
	}
	cn.w.after(millisecond, func() {
		p.step(core.SessionClosed{Cluster: cn.o.c.name, Session: cn.session, Reason: reason})
	})
}

// clientGone is the operator noticing that its stream is gone; it dials again.
func (cn *conn) clientGone() {
	if !cn.client {
		return
	}
	cn.client = false
	if cn.server { // the shard notices later, perhaps much later
		wait := cn.w.delay()
		if cn.w.roll(DeafOperator) {
			wait += cn.w.net.between(second, 40*second)
		}
		cn.w.after(wait, func() {
			if cn.server {
				cn.endServer()
				cn.closed("stream ended")
			}
		})
	}
	if o := cn.o; o.conn == cn {
		o.conn = nil
		cn.w.after(o.c.r.between(100*millisecond, 3*second), o.dial)
	}
}
