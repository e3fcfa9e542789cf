package sim

import (
	"maps"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/session"
)

// slowAfter is how long one write may take before the session ends (SHARD-9.6).
const slowAfter = 30 * second

// outgoing is the way of frames to an operator: the production outbox, its one writer, and a window of frames that the
// operator has not read. It also knows what was put and what was read, and holds the two against each other
// (SHARD-33.5.11).
type outgoing struct {
	box    *session.Outbox
	held   *session.Frame // in the writer's hand, waiting for room
	writes int64          // frames that were written
	watch  int64          // the write that a watchdog is on
	wire   []func()       // written and not read

	waiting [2]int64 // essential frames in the box, and bytes of all
	put     int64    // essential frames that were put
	read    int64    // and read
	state   map[string]versions
	behind  [2]int // keys of which the newest was not read: of states, and of advice that may be dropped
}

// versions are the newest frame of a key that was put, and the newest that was read.
type versions struct{ put, read int64 }

func (w *world) newOutgoing() outgoing {
	return outgoing{box: session.NewOutbox(w.outbox), state: map[string]versions{}}
}

// keyOf is what a frame is about, in words of the simulator's own; essential frames are about nothing but themselves.
func keyOf(x core.Effect) (key string, essential, advice bool) {
	switch x := x.(type) {
	case core.SendNodeState:
		return "node " + x.Machine.ID, false, false
	case core.SendHint:
		return "hint " + x.Fingerprint, false, true
	case core.SendNeedStatus:
		return "need " + x.Key.Fingerprint + " " + x.Key.Group, false, true
	case core.SendAck:
		switch {
		case x.Hello:
			return "", true, false
		case x.Echo == core.EchoResync:
			return "resync", false, false
		}
		return "rollup", false, false
	}
	return "", true, false
}

// notify puts a frame into the outbox of a session. It reports whether there was a session and room for it.
func (p *process) notify(x core.Effect, deliver func(o *operator)) bool {
	f, cluster, number, ok := session.FrameOf(x)
	if !ok {
		return false
	}
	cn := p.conns[cluster]
	if cn == nil || !cn.server || cn.session != number {
		return false
	}
	key, essential, advice := keyOf(x)
	var read func()
	if essential {
		read = cn.essential()
	} else {
		read = cn.keyed(key, advice)
	}
	f.Render = func() *pb.ShardMessage { // runs when the operator reads the frame
		if read(); cn.client && cn.o.conn == cn && !cn.o.down {
			deliver(cn.o)
		}
		return nil
	}
	cn.out.waiting[1] += int64(f.Bytes)
	if essential {
		cn.out.waiting[0]++
	}
	begin, ok := cn.out.box.Put(f)
	if !ok {
		cn.w.tally.Slow++
		cn.serverCloses("slow consumer")
		return false
	}
	cn.checkCapacity(x)
	if begin {
		cn.pump()
	}
	return true
}

// essential counts an essential frame, and returns what is to be checked when it is read.
func (cn *conn) essential() func() {
	cn.out.put++
	mine := cn.out.put
	return func() {
		if mine != cn.out.read+1 {
			cn.w.broken("frame-lost", "SHARD-33.5.11", "", cn.o.c.name, "%s reads essential frame %d of session %d after frame %d", cn.o.name, mine, cn.session, cn.out.read)
		}
		cn.out.read = mine
	}
}

// keyed counts a frame of a key, and returns what is to be checked when it is read: it is newer than what was read of
// the key, and a resync marker stands behind all states that were put before it.
func (cn *conn) keyed(key string, advice bool) func() {
	kind := 0
	if advice {
		kind = 1
	}
	v := cn.out.state[key]
	if v.put == v.read {
		cn.out.behind[kind]++
	}
	v.put++
	cn.out.state[key] = v
	mine := v.put
	var before map[string]versions
	if key == "resync" {
		before = maps.Clone(cn.out.state)
	}
	return func() {
		v := cn.out.state[key]
		if mine <= v.read {
			cn.w.broken("frame-old", "SHARD-33.5.11", "", cn.o.c.name, "%s reads state %d of %q in session %d after state %d", cn.o.name, mine, key, cn.session, v.read)
		}
		v.read = mine
		if v.read == v.put {
			cn.out.behind[kind]--
		}
		cn.out.state[key] = v
		for _, other := range sortedKeys(before) {
			if now := cn.out.state[other]; other[:4] == "node" && now.read < before[other].put {
				cn.w.broken("marker-early", "SHARD-9.3", other[5:], cn.o.c.name, "%s reads the end of the replay before the state of %s that was put ahead of it", cn.o.name, other[5:])
			}
		}
	}
}

// checkCapacity: an outbox stays within its limits (SHARD-33.5.10).
func (cn *conn) checkCapacity(x core.Effect) {
	n, limit := cn.out.box.Stats(), cn.w.outbox
	if n.Depth[session.Essential] > limit.EssentialFrames || cn.out.waiting[0] > int64(limit.EssentialFrames) {
		cn.w.broken("outbox-limit", "SHARD-33.5.10", "", cn.o.c.name, "%d essential frames wait for %s, at most %d", cn.out.waiting[0], cn.o.name, limit.EssentialFrames)
	}
}

// pump is the writer: it takes frames while there is room for them between it and the operator.
func (cn *conn) pump() {
	for cn.server {
		if cn.out.held == nil {
			f, ok := cn.out.box.Next()
			if !ok {
				return
			}
			if cn.out.held = &f; f.Class == session.Essential {
				cn.out.waiting[0]--
			}
			cn.out.waiting[1] -= int64(f.Bytes)
		}
		if len(cn.out.wire) >= cn.w.window && !cn.w.calm {
			cn.guardWrite()
			return
		}
		cn.send(cn.out.held)
		cn.out.held = nil
	}
}

// guardWrite ends a session whose write takes too long.
func (cn *conn) guardWrite() {
	mine := cn.out.writes + 1
	if cn.out.watch == mine {
		return
	}
	cn.out.watch = mine
	cn.w.after(slowAfter, func() {
		if cn.server && cn.out.held != nil && cn.out.writes+1 == mine {
			cn.w.tally.Slow++
			cn.serverCloses("slow consumer")
		}
	})
}

// send writes a frame. Frames arrive in the order in which they were written, or not at all.
func (cn *conn) send(f *session.Frame) {
	w := cn.w
	cn.out.writes++
	d := int64(0)
	if f.Class != session.Hint && f.Class != session.NeedStatus {
		if d = w.delay(); w.roll(FrameSlow) {
			d += w.net.between(second, minute)
		}
	}
	cn.downAt = max(cn.downAt, w.now+d)
	render := f.Render
	if d == 0 && len(cn.out.wire) == 0 && cn.downAt == w.now && max(cn.o.deafUntil, cn.o.cutUntil) <= w.now {
		render() // advice arrives at once, and nothing is ahead of it
		return
	}
	cn.out.wire = append(cn.out.wire, func() { render() })
	w.at(cn.downAt, cn.receive)
}

// receive is the operator reading the oldest frame on the wire, unless it does not read at present or nothing comes through.
func (cn *conn) receive() {
	if until := max(cn.o.deafUntil, cn.o.cutUntil); until > cn.w.now {
		cn.w.at(until, cn.receive)
		return
	}
	if len(cn.out.wire) == 0 {
		return
	}
	f := cn.out.wire[0]
	cn.out.wire = cn.out.wire[1:]
	f()
	cn.pump()
	cn.checkCaughtUp()
}

// checkCaughtUp: with nothing left in the outbox and on the wire the operator knows the newest of every key.
func (cn *conn) checkCaughtUp() {
	if !cn.server || len(cn.out.wire) > 0 || cn.out.held != nil {
		return
	}
	n := cn.out.box.Stats()
	cn.w.tally.Coalesced += int(n.Coalesced - cn.coalesced)
	cn.w.tally.Dropped += int(n.Dropped[session.Hint] + n.Dropped[session.NeedStatus] - cn.dropped)
	cn.coalesced, cn.dropped = n.Coalesced, n.Dropped[session.Hint]+n.Dropped[session.NeedStatus]
	switch {
	case n.Depth != [4]int{}:
		cn.w.broken("writer-stopped", "SHARD-9.1", "", cn.o.c.name, "frames wait for %s and no writer is at work: %v", cn.o.name, n.Depth)
	case cn.out.read != cn.out.put:
		cn.w.broken("frame-lost", "SHARD-33.5.11", "", cn.o.c.name, "%s has read %d of %d essential frames of session %d and none is left", cn.o.name, cn.out.read, cn.out.put, cn.session)
	case cn.out.behind[0] > 0, cn.out.behind[1] > 0 && cn.dropped == 0:
		for _, key := range sortedKeys(cn.out.state) {
			if v := cn.out.state[key]; v.put != v.read {
				cn.w.broken("frame-old", "SHARD-33.5.11", "", cn.o.c.name, "%s knows state %d of %q in session %d, the newest is %d and nothing is left", cn.o.name, v.read, key, cn.session, v.put)
			}
		}
	}
}
