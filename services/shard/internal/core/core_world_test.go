package core

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one core with a provider and operators that do what tests say, in virtual time. Effects are answered through
// a queue, each after the delay that its kind has.
type world struct {
	t       testing.TB
	c       *Core
	mono    int64
	wall    int64
	ended   int64 // when the step before was over; 0: it took no time
	queue   []later
	seq     int
	arrival int64
	session int64

	provider     map[string]*inventory.Machine // what is true
	attributions map[string]Attribution
	calls        []Command
	sent         []Effect // everything that went to operators
	records      []Record
	samples      map[string]int64
	sessions     map[string]int64
	log          []logged // every event, for replays
	deleted      map[string]bool
	owner        string // that configured what is bound; empty: this shard

	dwell   int64                                  // of transitions at the provider
	reply   func(Command) (Code, bool)             // false: no effect took place; nil: accepted
	blob    func(PullBootstrap) *BootstrapAnswered // nil result: silence
	ack     func(SendReclaim) bool
	drain   func(SendReclaim) int32 // what the operator reports after the ack; nil: done
	failure string                  // why the ack names no node
	listErr bool
	dead    map[string]bool // providers that answer nothing

	unanswered map[string]bool // those of them to which no connection is made, for as long as a dial may take
	listing    func([]Fact) []Fact
	answers    []AdminAnswer
	acks       []AckInstruction
	notices    []Notice
	view       *Publish // what readers see

	watch    func([]Effect) // sees what each step gives
	during   func()         // is called while the next part of a plan is made beside the loop
	tampered bool
}

type later struct {
	at  int64
	seq int
	do  func()
}

type logged struct {
	at At
	e  Event
}

func newWorld(t testing.TB, edit func(*Config), machines ...inventory.Machine) *world {
	return worldWith(t, Control{}, edit, machines...)
}

// worldWith is newWorld with what an earlier process stored.
func worldWith(t testing.TB, control Control, edit func(*Config), machines ...inventory.Machine) *world {
	w := &world{t: t, c: New(nil), mono: Second, wall: 1_800_000_000 * Second, provider: map[string]*inventory.Machine{}, attributions: map[string]Attribution{},
		samples: map[string]int64{}, sessions: map[string]int64{}, deleted: map[string]bool{}}
	for i := range machines {
		w.provider[machines[i].ID] = &machines[i]
	}
	cfg := Config{ShardID: "shard-0", Providers: []string{"p"}, ReclaimCapOff: true, ReleaseDelay: -1, ReleaseDelayEmpty: -1, SessionHandoverWait: -1}
	if edit != nil {
		edit(&cfg)
	}
	w.step(Started{Config: cfg, Epoch: 7, Control: control})
	t.Cleanup(w.replay)
	return w
}

// slot and host are machines of 4 cpus.
func slot(id string) inventory.Machine {
	return inventory.Machine{ID: id, Provider: "p", State: inventory.Speculative, InstanceType: "m4", Zone: "z", CapacityType: inventory.OnDemand,
		Price: 1_000_000, Resources: []resource.Quantity{{Name: "cpu", Milli: 4000}}}
}

func host(id string, s inventory.State, cluster string) inventory.Machine {
	m := slot(id)
	m.State, m.Cluster, m.HostProvider, m.HostRef = s, cluster, "p", "ref-"+id
	if s == inventory.Failed {
		m.LastError = "broken"
	}
	return m
}

// cheap is a machine whose hold lasts for as long as any (ENG-16.7).
func cheap(m inventory.Machine) inventory.Machine {
	m.Price = 200_000
	return m
}

func slotsOf(n int) (out []inventory.Machine) {
	for i := range n {
		out = append(out, slot(fmt.Sprintf("m%02d", i+1)))
	}
	return out
}

// replay takes the reduced record of the history and must arrive at the same decisions and the same state (SHARD-28.2).
// Tests that reach into the core say so with tampered.
func (w *world) replay() {
	if w.tampered || w.t.Failed() {
		return
	}
	c := New(nil)
	var captures []*Capture
	var want [][]byte
	for i, l := range w.log {
		c.Step(l.at, l.e)
		if i%(len(w.log)/4+1) == 0 {
			captures, want = append(captures, c.freeze()), append(want, codec.Marshal(c.live().Snapshot()))
		}
	}
	for i, x := range captures { // SHARD-28.3: the loop continues before a checkpoint is written, which says how things were
		if got := codec.Marshal(x.Snapshot()); !bytes.Equal(got, want[i]) {
			w.t.Errorf("checkpoint %d changed while the core went on: %d bytes, it had %d", i, len(got), len(want[i]))
		}
	}
	if c.Digest() != w.c.Digest() || c.StateDigest() != w.c.StateDigest() {
		w.t.Errorf("the reduced record replays to %x/%x, the history was %x/%x", c.Digest(), c.StateDigest(), w.c.Digest(), w.c.StateDigest())
	}
}

func (w *world) after(d int64, do func()) {
	w.seq++
	w.queue = append(w.queue, later{w.mono + d, w.seq, do})
}

// step gives one event to the core and takes its effects in.
// step steps the core as the loop does.
func (w *world) step(e Event) {
	for first := w.c.TooWide(At{Mono: w.mono, Wall: w.wall, Ended: w.ended}); first != nil; first = w.c.TooWide(At{Mono: w.mono, Wall: w.wall, Ended: w.ended}) {
		w.one(first)
	}
	w.one(e)
}

func (w *world) one(e Event) {
	at := At{Mono: w.mono, Wall: w.wall, Ended: w.ended}
	effects := slices.Clone(w.c.Step(at, e))
	w.log = append(w.log, logged{at, w.c.Reduced(e)})
	if w.watch != nil {
		w.watch(effects)
	}
	for _, x := range effects {
		w.take(x)
	}
	if w.c.open == nil {
		w.check()
	}
	w.beside()
}

// beside makes what the core wants to be made beside the loop, and what a test does meanwhile at the same time.
func (w *world) beside() {
	work, ends := w.c.Beside()
	if work == nil {
		return
	}
	made, during := make(chan struct{}), w.during
	w.during = nil
	go func() {
		defer close(made)
		work()
	}()
	if during != nil {
		during()
	}
	<-made
	w.one(ends)
}

func (w *world) take(x Effect) {
	switch x := x.(type) {
	case Command:
		w.calls = append(w.calls, x)
		w.after(Millisecond, func() { w.command(x) })
	case GetMachine:
		w.after(Millisecond, func() { w.get(x) })
	case ListMachines:
		w.after(Millisecond, func() { w.list(x) })
	case PullBootstrap:
		w.sent = append(w.sent, x)
		w.after(Millisecond, func() { w.pull(x) })
	case SendReclaim:
		w.sent = append(w.sent, x)
		if !x.Cancelled && (w.ack == nil || w.ack(x)) {
			w.after(Millisecond, func() {
				ack := ReclaimAcked{Instruction: x.Instruction, Cluster: x.Cluster, Session: w.sessions[x.Cluster], NodesStarted: 1}
				if w.failure != "" {
					ack.NodesStarted, ack.Failures = 0, []NodeFailure{{Node: x.Node, Reason: w.failure, Message: "the operator says why"}}
				}
				w.step(ack)
				if w.drain == nil {
					w.step(DrainReported{Cluster: x.Cluster, Session: w.sessions[x.Cluster], Instruction: x.Instruction, State: drainDone})
				} else if state := w.drain(x); state != 0 {
					w.step(DrainReported{Cluster: x.Cluster, Session: w.sessions[x.Cluster], Instruction: x.Instruction, State: state, Blocking: []string{"default/db"}})
				}
			})
		}
	case SendNodeState, SendAck, SendHint, SendNeedStatus, CloseSession:
		w.sent = append(w.sent, x)
	case Record:
		w.records = append(w.records, x)
	case Sample:
		w.samples[sampleKey(x.Metric, x.Label1, x.Label2)] += x.Value
	case AckInstruction:
		w.acks = append(w.acks, x)
	case Notice:
		w.notices = append(w.notices, x)
	case *Publish:
		w.view = x
	case AdminAnswer:
		w.answers = append(w.answers, x)
	}
}

func (w *world) count(m Metric, labels ...string) int64 {
	l := append(labels, "", "")
	return w.samples[sampleKey(m, l[0], l[1])]
}

func sampleKey(m Metric, label1, label2 string) string {
	return fmt.Sprintf("%d/%s/%s", m, label1, label2)
}

func (w *world) fact(id string) *Fact {
	m := w.provider[id]
	if m == nil {
		return nil
	}
	f := &Fact{Machine: *m}
	if s, ok := w.attributions[id]; ok && boundState(m.State) {
		f.Attribution, f.HasAttribution, f.Owner = s, true, cmp.Or(w.owner, "shard-0")
	}
	return f
}

// command is the provider's side of a call.
func (w *world) command(x Command) {
	done := CommandDone{Op: x.Op, Attempt: x.Attempt, Machine: x.Machine, Sent: true}
	effect := true
	if w.dead[x.Provider] {
		done.Code, effect = CodeUnavailable, false
	} else if w.reply != nil {
		done.Code, effect = w.reply(x)
	}
	if effect {
		if m := w.provider[x.Machine]; m == nil {
			done.Code = CodeNotFound
		} else if m.State == x.RPC.start() {
			w.move(m, x.RPC.middle(), x)
			w.after(w.dwell, func() {
				if m.State == x.RPC.middle() {
					w.move(m, x.RPC.target(), x)
				}
			})
		} else if m.State != x.RPC.middle() && m.State != x.RPC.target() && done.Code == CodeOK {
			done.Code = CodeAborted
		}
		if done.Code == CodeOK {
			done.Ack = w.fact(x.Machine)
		}
	}
	if done.Code == CodeUnavailable && !effect {
		done.Sent = false
	}
	w.step(done)
}

func (w *world) move(m *inventory.Machine, to inventory.State, x Command) {
	m.State = to
	switch to {
	case inventory.Configuring:
		m.Cluster = x.Cluster
		if o := w.c.ops.byID[x.Op]; o != nil {
			w.attributions[m.ID] = o.Attribution
		}
	case inventory.Idle:
		m.Cluster, m.HostProvider, m.HostRef = "", "p", "ref-"+m.ID
		delete(w.attributions, m.ID)
	case inventory.Speculative:
		m.HostProvider, m.HostRef = "", ""
	}
}

func (w *world) get(x GetMachine) {
	if w.dead[x.Provider] {
		w.step(GetDone{Get: x.Get, Machine: x.Machine, Code: CodeUnavailable})
		return
	}
	f := w.fact(x.Machine)
	w.step(GetDone{Get: x.Get, Machine: x.Machine, Row: f, NotFound: f == nil, Code: map[bool]Code{true: CodeNotFound}[f == nil]})
}

func (w *world) list(x ListMachines) {
	if w.unanswered[x.Provider] {
		w.after(5*Second, func() { w.step(ListDone{List: x.List, Failed: true, Code: CodeUnavailable}) })
		return
	}
	if w.listErr || w.dead[x.Provider] {
		w.step(ListDone{List: x.List, Failed: true, Code: CodeUnavailable})
		return
	}
	var rows []Fact
	for _, id := range sortedKeys(w.provider) {
		if w.provider[id].Provider == x.Provider {
			rows = append(rows, *w.fact(id))
		}
	}
	if w.listing != nil {
		rows = w.listing(rows)
	}
	w.step(ListPage{List: x.List, Rows: rows})
	w.step(ListDone{List: x.List, Complete: true, Seen: int64(len(rows)), Duration: Millisecond})
}

func (w *world) pull(x PullBootstrap) {
	a := &BootstrapAnswered{Digest: "d", Length: 10}
	if w.blob != nil {
		a = w.blob(x)
	}
	if a == nil {
		return
	}
	a.Request, a.Cluster, a.Session = x.Request, x.Cluster, w.sessions[x.Cluster]
	w.step(*a)
}

// run lets time pass.
func (w *world) run(d int64) {
	for end := w.mono + d; ; {
		next, i := end, -1
		for j := range w.queue {
			q := &w.queue[j]
			if q.at < next || q.at == next && i >= 0 && q.seq < w.queue[i].seq || q.at == next && i < 0 {
				next, i = q.at, j
			}
		}
		if wake, ok := w.c.NextWake(); ok && wake < next {
			w.advance(max(wake, w.mono))
			w.step(Tick{})
			continue
		}
		if i < 0 {
			w.advance(end)
			return
		}
		do := w.queue[i].do
		w.advance(max(next, w.mono))
		w.queue = slices.Delete(w.queue, i, i+1)
		do()
	}
}

func (w *world) advance(to int64) {
	w.wall += to - w.mono
	w.mono = to
}

// connect opens a session with all features.
func (w *world) connect(cluster string, features ...string) {
	if features == nil {
		features = []string{"reclaim-cancel", "released", "node-report", "need-status", "drain-report"}
	}
	w.session++
	w.sessions[cluster] = w.session
	w.step(SessionOpened{Cluster: cluster, Session: w.session, Features: features, ProtocolVersion: "v1alpha1"})
}

func (w *world) disconnect(cluster string) {
	w.step(SessionClosed{Cluster: cluster, Session: w.sessions[cluster], Reason: "test"})
	delete(w.sessions, cluster)
}

// needs is a roll-up of rows of the given cpus at a priority, each row in units of one cpu.
func needs(priority int32, cpus ...int64) (out []demand.Row) {
	for i, n := range cpus {
		r := demand.Row{Profile: demand.Profile{Priority: priority, Requirements: []demand.Requirement{{Key: fmt.Sprintf("k%d", i), Op: demand.DoesNotExist}}},
			Aggregate: []resource.Quantity{{Name: "cpu", Milli: n * 1000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}},
			RowID: fmt.Sprintf("row%d", i)}
		if n == 0 {
			r.Aggregate, r.MinUnit = nil, nil
		}
		r.Seal()
		out = append(out, r)
	}
	return out
}

// rollup sends demand and returns its disposition.
func (w *world) rollup(cluster string, rows []demand.Row) Disposition {
	w.arrival++
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%s%v%v;", r.Fingerprint, r.Aggregate, r.MinUnit)
	}
	from := len(w.sent)
	w.step(RollupArrived{Cluster: cluster, Session: w.sessions[cluster], Arrival: w.arrival, Rows: slices.Clone(rows), Hash: b.String(), RowCount: int64(len(rows))})
	for _, x := range w.sent[from:] {
		if a, ok := x.(SendAck); ok && a.Rollup != nil {
			return a.Rollup.Disposition
		}
	}
	return DispositionNone
}

func (w *world) state(s inventory.State) (n int) {
	for _, m := range w.provider {
		if m.State == s {
			n++
		}
	}
	return n
}

func (w *world) called(rpc RPC) (out []string) {
	for _, c := range w.calls {
		if c.RPC == rpc {
			out = append(out, c.Machine)
		}
	}
	return out
}

func (w *world) recorded(t RecordType) (out []Record) {
	for _, r := range w.records {
		if r.Type == t {
			out = append(out, r)
		}
	}
	return out
}

func (w *world) outcomes(k Kind) map[string]int {
	out := map[string]int{}
	for _, r := range w.recorded(RecordEnded) {
		if r.Kind == k {
			out[r.Outcome]++
		}
	}
	return out
}

// check holds the invariants that need no outside view, after each step (SHARD-4.10).
func (w *world) check() {
	if why := w.c.Broken(); why != "" {
		w.t.Fatalf("broken invariant at %d ms: %s", w.mono/Millisecond, why)
	}
}

func sentOf[T Effect](w *world) (out []T) {
	for _, x := range w.sent {
		if v, ok := x.(T); ok {
			out = append(out, v)
		}
	}
	return out
}
