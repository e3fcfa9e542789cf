package sim

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// operator is the model of one cluster's operator: it dials, reports demand on change and by heartbeat, answers
// bootstrap requests, cordons, evicts and acknowledges.
type operator struct {
	c        *cluster
	name     string
	features []string
	conn     *conn
	down     bool // crashed, until woken
	gone     bool // never comes back
	tries    int
	lastSent int64
	sending  bool // a roll-up is scheduled
	beat     int64
	objects  map[string]inventory.State // UpcomingNodes by machine
	mention  map[string]bool            // named since the last Hello
	drains   map[string]bool            // instructions taken

	life      int64 // drains of an earlier one are forgotten
	deafUntil int64 // it reads nothing before
	cutUntil  int64 // nothing gets through, in either direction
}

var allFeatures = []string{"drain-report", "need-status", "node-report", "reclaim-cancel", "released", "rollup-ack", "unplaced-pods"}

func (c *cluster) newOperator(n int) *operator {
	o := &operator{c: c, name: fmt.Sprintf("%s/operator-%d", c.name, n), objects: map[string]inventory.State{}, mention: map[string]bool{}, drains: map[string]bool{}}
	switch {
	case c.r.chance(.15): // a peer without extensions
	case c.r.chance(.3):
		for _, f := range allFeatures {
			if c.r.chance(.6) {
				o.features = append(o.features, f)
			}
		}
	default:
		o.features = allFeatures
	}
	if c.w.profile.plain {
		o.features = nil
	}
	return o
}

func (o *operator) has(feature string) bool { return slices.Contains(o.features, feature) }

// dial opens a stream, again and again until it is there.
func (o *operator) dial() {
	w := o.c.w
	if o.down || o.gone || o.conn != nil {
		return
	}
	p := o.c.s.proc
	if p == nil || p.halted || p.frozen || w.now < o.cutUntil {
		o.tries++
		w.after(min(second<<min(o.tries, 4), 15*second)+o.c.r.between(0, second), o.dial)
		return
	}
	o.tries = 0
	cn := &conn{w: w, o: o, p: p, client: true, out: w.newOutgoing()}
	o.conn = cn
	w.after(w.delay(), func() {
		if p.dead || !cn.client {
			cn.clientGone()
			return
		}
		p.streams++
		cn.session, cn.server = p.streams, true
		if old := p.conns[o.c.name]; old != nil {
			old.serverCloses("replaced")
		}
		p.conns[o.c.name] = cn
		w.note("", o.c.name, "%s has session %d at %s", o.name, cn.session, p.name)
		p.step(core.SessionOpened{Cluster: o.c.name, Session: cn.session, Features: o.features, ProtocolVersion: "v1alpha1", OperatorVersion: "sim"})
	})
}

// acked takes an acknowledgement.
func (o *operator) acked(a core.SendAck) {
	if a.Hello {
		clear(o.mention)
		o.sayAll()
		return
	}
	if a.Echo == core.EchoResync {
		for _, id := range sortedKeys(o.objects) {
			if !o.mention[id] {
				delete(o.objects, id)
			}
		}
	}
}

// sayAll is what an operator sends on a new stream: its nodes, then its demand.
func (o *operator) sayAll() {
	if o.has("node-report") {
		nodes := slices.Clone(o.c.nodes)
		for i, n := range nodes {
			o.reportNode(n, i == len(nodes)-1)
		}
		if len(nodes) == 0 {
			o.conn.toShard(core.NodeReported{Cluster: o.c.name, LastOfFullSet: true})
		}
	}
	o.sendRollup()
	o.beat++
	o.heartbeat(o.beat)
}

func (o *operator) reportNode(n *node, last bool) {
	if o.conn == nil || o.down || !o.has("node-report") {
		return
	}
	o.conn.toShard(core.NodeReported{Cluster: o.c.name, Machine: n.m.ID, Node: "node-" + n.m.ID, Present: n.joined, Ready: n.ready, LastOfFullSet: last})
}

// heartbeat repeats the roll-up every 10 s.
func (o *operator) heartbeat(mine int64) {
	o.c.w.after(10*second, func() {
		if mine != o.beat || o.conn == nil || o.down || o.gone {
			return
		}
		o.sendRollup()
		o.reportStuck()
		o.heartbeat(mine)
	})
}

// somethingChanged sends a roll-up 250 ms after a change, at most one a second.
func (o *operator) somethingChanged() {
	w := o.c.w
	if o.sending || o.conn == nil || o.down {
		return
	}
	o.sending = true
	w.at(max(w.now+250*millisecond, o.lastSent+second), func() {
		o.sending = false
		o.sendRollup()
	})
}

func (o *operator) sendRollup() {
	w := o.c.w
	if o.conn == nil || o.down || o.gone {
		return
	}
	o.lastSent = w.now
	rows := o.c.rows()
	if o.c.wiped {
		rows = nil
	}
	e := core.RollupArrived{Cluster: o.c.name, Rows: rows, RowCount: int64(len(rows)), Hash: hashRows(rows), Bytes: int64(100 * len(rows)), Timestamp: w.wall()}
	if w.roll(RollupRejected) {
		e.Rows, e.Hash = nil, ""
		e.Reject = &core.Rejection{Reason: "invalid", Message: "a bucket that no penalty has", NeedIndex: 0, FieldPath: "needs[0]"}
	}
	o.conn.toShard(e)
}

func hashRows(rows []demand.Row) string {
	h := newDigest()
	for i := range rows {
		h = h.str(rows[i].Fingerprint).str(rows[i].Group)
		for _, q := range rows[i].Aggregate {
			h = h.str(q.Name).u64(uint64(q.Milli))
		}
	}
	return fmt.Sprintf("%016x", h.sum())
}

// reportStuck tells which Pods the scheduler could not place for two minutes.
func (o *operator) reportStuck() {
	if !o.has("unplaced-pods") {
		return
	}
	var rows []core.UnplacedRow
	for _, d := range o.c.work {
		if d.pending > 0 && d.stuck > 0 && o.c.w.now-d.stuck > 2*minute {
			rows = append(rows, core.UnplacedRow{RowID: d.row.RowID, Pods: int64(d.pending), Since: epochOfRuns + d.stuck})
		}
	}
	slices.SortFunc(rows, func(a, b core.UnplacedRow) int { return compare(a.RowID, b.RowID) })
	o.conn.toShard(core.UnplacedReported{Cluster: o.c.name, Rows: rows})
}

// nodeState keeps the UpcomingNode objects.
func (o *operator) nodeState(s core.SendNodeState) {
	id := s.Machine.ID
	if s.Released {
		delete(o.objects, id)
		return
	}
	_, known := o.objects[id]
	o.objects[id], o.mention[id] = s.Machine.State, true
	if n := o.c.nodeOf(id); n != nil && n.joined && !known {
		o.reportNode(n, false) // a machine that becomes known is reported (OP-11.1)
	}
	if s.Machine.State == inventory.Failed && !o.has("released") {
		delete(o.objects, id)
	}
}

// brokenBlob is the digest of a blob with which no node can join.
const brokenBlob = "broken"

// pulled answers a bootstrap request.
func (o *operator) pulled(x core.PullBootstrap) {
	w := o.c.w
	if w.roll(BlobSilence) {
		return
	}
	a := core.BootstrapAnswered{Request: x.Request, Cluster: o.c.name, Digest: "d", Length: 100}
	switch {
	case w.roll(BlobError):
		a.Error, a.Retryable, a.Length, a.Digest = "the template does not render", o.c.r.chance(.5), 0, ""
	case w.roll(BlobShortTTL):
		a.TTL = o.c.r.spread(millisecond, 10*second)
	case w.roll(BlobBroken):
		a.Digest = brokenBlob
	}
	cn, wait := o.conn, o.c.r.spread(10*millisecond, 5*second)
	if w.roll(BlobSlow) {
		wait += w.rollDice[BlobSlow].between(10*second, 90*second)
	}
	w.after(wait, func() {
		if o.conn == cn && !o.down {
			cn.toShard(a)
		}
	})
}

// notified carries out a reclaim instruction: cordon, acknowledge, evict; or takes it back.
func (o *operator) notified(x core.SendReclaim) {
	w, n := o.c.w, o.c.nodeOf(x.Machine)
	if x.Cancelled {
		if n != nil && o.drains[x.Instruction] {
			n.cordoned = false
			o.c.look()
		}
		delete(o.drains, x.Instruction)
		return
	}
	ack := core.ReclaimAcked{Instruction: x.Instruction, Cluster: o.c.name, NodesStarted: 1}
	if n == nil || !n.joined {
		ack.NodesStarted = 0
	} else {
		n.cordoned = true
	}
	if w.roll(AckFailures) {
		ack.NodesStarted, ack.Failures = 0, []core.NodeFailure{{Node: x.Node, Reason: "NotFound", Message: "no node has this machine id"}}
	}
	first := !o.drains[x.Instruction]
	o.drains[x.Instruction] = true
	if first && n != nil {
		o.evictLater(n, x)
	}
	if w.roll(AckLost) {
		return
	}
	cn := o.conn
	w.after(o.c.r.spread(10*millisecond, 4*second), func() {
		if o.conn != cn {
			return
		}
		cn.toShard(ack)
		if w.roll(AckTwice) {
			cn.toShard(ack)
		}
	})
}

// evictLater empties a node within the grace, or finds that budgets block it until the deadline. Then nothing is evicted by an
// operator that says so, and everything by one that cannot.
func (o *operator) evictLater(n *node, x core.SendReclaim) {
	w := o.c.w
	wait, blocked := o.c.r.spread(100*millisecond, 30*second), w.roll(EvictionBlocked)
	if blocked {
		wait = x.GraceSecs * second
	}
	mine := o.life
	w.after(wait, func() {
		if n.m.node != n || !n.cordoned || o.life != mine || !o.drains[x.Instruction] {
			return
		}
		report := core.DrainReported{Cluster: o.c.name, Instruction: x.Instruction, State: drainDone}
		if blocked && o.has("drain-report") {
			report.State, report.Blocking = drainDeadlineExceeded, []string{"default/db"}
		} else {
			n.evict()
			o.c.look()
		}
		o.reportDrain(report)
	})
}

// States of a drain, by the numbers of bigfleet.v1alpha1.DrainState.
const (
	drainDone             = 2
	drainDeadlineExceeded = 3
)

// reportDrain says how a drain ended until a session takes it.
func (o *operator) reportDrain(r core.DrainReported) {
	mine := o.life
	switch {
	case o.life != mine || !o.drains[r.Instruction] || !o.has("drain-report"):
	case o.conn != nil:
		o.conn.toShard(r)
	default:
		o.c.w.after(5*second, func() {
			if o.life == mine {
				o.reportDrain(r)
			}
		})
	}
}

// leave ends an operator for good.
func (o *operator) leave(why string) {
	o.gone = true
	o.c.w.note("", o.c.name, "%s leaves: %s", o.name, why)
	if o.conn != nil {
		o.conn.clientGone()
	}
}

// crash takes an operator down until it is woken.
func (o *operator) crash() {
	o.down = true
	if o.conn != nil {
		o.conn.clientGone()
	}
}

func (o *operator) wake() {
	if o.down {
		o.down = false
		o.dial()
	}
}
