package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// process is one run of the shard's program: the core, and what the shell keeps beside it.
type process struct {
	w       *world
	s       *shard
	core    *core.Core
	name    string
	epoch   int64
	began   int64 // virtual time of its Mono 0
	dead    bool
	frozen  bool
	queue   []core.Event // what came while it was frozen
	alarm   int64        // number of the armed alarm
	armed   int64
	tokens  int64 // sequence numbers taken
	streams int64 // session numbers given
	arrival int64
	conns   map[string]*conn // server side, by cluster
	blobs   map[string]blob  // by request
	owns    bool             // the disk is its own; a twin's is not
	unsaved []core.Persist   // hints not on the disk yet
	crashIn int              // effects left before it dies in the middle of a step; 0: not planned
	paused  bool             // a pause of everything is in force, as the core received it
	pauses  []string
	dryRun  bool
	halted  bool              // superseded, by its own word
	refused int               // commands refused by the fence, of a newer epoch
	doubts  map[string]*doubt // by provider: what the fence refused without saying why

	lineage  core.Lineage          // term mark and group that the client knows
	unstored []word                // what the coordinator may hear of once its ground is on the disk
	given    map[string]bool       // machines that were given back, by the disk
	acks     []core.AckInstruction // answers that no report has brought over
	removed  bool                  // it has learnt that it is no longer a shard of the fleet

	inflight map[string]core.Command // by operation
	publish  *core.Publish
	compare  core.CompareCadence
	making   bool         // a plan, beside the loop
	waiting  []core.Event // for it
	tape     []taped
}

// blob is a bootstrap blob as the shell keeps it. Its bytes stand for whether a node can join with it.
type blob struct{ works bool }

// taped is one recorded event, reduced to what the decision log keeps, with the digest of its effects.
type taped struct {
	at   core.At
	e    core.Event
	sum  uint64
	deep uint64
}

// startProcess starts the program from what is on the disk.
func (s *shard) startProcess() {
	w, d := s.w, &s.disk
	d.epoch = max(d.epoch+1, w.wall()/second)
	p := &process{w: w, s: s, core: core.New(w.policy), epoch: d.epoch, began: w.now, conns: map[string]*conn{}, blobs: map[string]blob{},
		inflight: map[string]core.Command{}, doubts: map[string]*doubt{}, given: map[string]bool{}, dryRun: d.dryRun, owns: true}
	p.name = fmt.Sprintf("epoch %d", p.epoch)
	s.proc = p
	s.check.processStarted(p)
	e := core.Started{Config: s.config, Epoch: p.epoch}
	e.Control.DryRun, e.Control.Retired, e.Control.Forgotten = d.dryRun, slices.Clone(d.retired), slices.Clone(d.forgotten)
	for _, id := range sortedKeys(d.pauses) {
		e.Control.Pauses = append(e.Control.Pauses, d.pauses[id])
		if coversAll(d.pauses[id]) && d.pauses[id].TTL == 0 { // when another one ends is the core's to say
			p.pauses, p.paused = append(p.pauses, id), true
		}
	}
	for _, id := range sortedKeys(d.journal) {
		var j core.JournalEntry
		if err := codec.Unmarshal(d.journal[id], &j); err != nil {
			w.broken("journal-unreadable", "SHARD-13.15", id, "", "a journal entry does not read back: %v", err)
		}
		e.Journal = append(e.Journal, j)
	}
	for _, name := range sortedKeys(d.room) {
		var r core.KeptRoom
		if err := codec.Unmarshal(d.room[name], &r); err != nil {
			w.broken("room-unreadable", "SHARD-13.20", "", name, "what is kept of a cluster's rows does not read back: %v", err)
		}
		e.Room = append(e.Room, r)
	}
	if err := d.restore(&e.Control); err != nil {
		w.broken("control-unreadable", "SHARD-5.4", "", "", "what the coordinator ordered does not read back: %v", err)
	}
	p.lineage = e.Control.Coordinator
	s.check.remembers(e.Control)
	if w.coord != nil {
		w.coord.started(p, &e.Control)
	}
	w.note("", "", "%s starts a process: epoch %d, %d journal entries, %d pauses", s.id, p.epoch, len(e.Journal), len(e.Control.Pauses))
	p.step(e)
	if w.coord != nil {
		w.after(w.coord.r.between(10*millisecond, second), p.report)
	}
}

func coversAll(p core.Pause) bool { return len(p.Kinds) == 0 && p.Cluster == "" && p.Provider == "" }

// kill ends a process at once, as kill -9 does.
func (s *shard) kill(p *process, why string) {
	if p == nil || p.dead {
		return
	}
	w := s.w
	w.note("", "", "process %s ends: %s", p.name, why)
	w.endProcess(p)
	if p == s.proc {
		s.proc = nil
		if w.roll(HintsLost) {
			w.note("", "", "%d hints were not on the disk yet", len(p.unsaved))
			p.unsaved = nil
		} else {
			p.save(len(p.unsaved))
		}
		if w.roll(DataDirLost) {
			s.disk = newDisk()
			w.note("", "", "the data dir is lost")
		}
	} else if p == s.twin {
		s.twin = nil
	}
	for _, name := range sortedKeys(p.conns) {
		p.conns[name].serverGone()
	}
}

// endProcess stops a process and replays its tape.
func (w *world) endProcess(p *process) {
	if p == nil || p.dead {
		return
	}
	p.dead = true
	p.replay()
}

// thaw lets a frozen process go on with what waited.
func (p *process) thaw() {
	if !p.frozen || p.dead {
		return
	}
	p.frozen = false
	p.w.note("", "", "process %s goes on; %d events waited", p.name, len(p.queue))
	waiting := p.queue
	p.queue = nil
	for _, e := range waiting {
		p.step(e)
	}
	p.armed = 0 // an alarm that rang meanwhile was not heard
	p.rearm()
}

func (p *process) at() core.At { return core.At{Mono: p.w.now - p.began, Wall: p.w.wall()} }

// virtual turns the clock of the process into a time of the run.
func (p *process) virtual(mono int64) int64 { return p.began + mono }

// step gives the core one event and carries out its effects.
func (p *process) step(e core.Event) {
	w := p.w
	if p.dead || w.fail != nil {
		return
	}
	if p.frozen {
		p.queue = append(p.queue, e)
		return
	}
	if p.waits(e) {
		return
	}
	w.steps++
	w.tally.Events[core.KindOf(e)]++
	p.s.check.before(p, e)
	at := p.at()
	effects, crash := p.tryStep(at, e)
	if crash != "" {
		w.broken("panic", "SHARD-3.7", "", "", "%T: %s", e, crash)
		return
	}
	sum := newDigest()
	for _, x := range effects {
		sum.effect(x)
	}
	w.trace = w.trace.u64(sum.sum())
	if w.Replay {
		p.tape = append(p.tape, taped{at: at, e: p.core.Reduced(e), sum: sum.sum(), deep: p.digest()})
	}
	if w.log != nil {
		w.logEvent(p, e)
	}
	for _, x := range effects {
		if w.log != nil {
			w.logEffect(p, x)
		}
		w.tally.effect(x)
		p.s.check.effect(p, e, x)
	}
	p.s.check.after(p, e)
	if w.Watch != nil {
		w.Watch(p.core, effects)
	}
	for i, x := range effects {
		if p.crashIn > 0 {
			if p.crashIn--; p.crashIn == 0 {
				w.note("", "", "crash in the middle of a step: %d of %d effects were carried out", i, len(effects))
				p.s.crashed(p)
				return
			}
		}
		p.apply(x)
		if w.fail != nil {
			return
		}
	}
	p.besideLoop()
	p.rearm()
}

func (p *process) tryStep(at core.At, e core.Event) (effects []core.Effect, crash string) {
	defer func() {
		if r := recover(); r != nil {
			crash = fmt.Sprint(r) + "\n" + stack()
		}
	}()
	return p.core.Step(at, e), ""
}

// digester is the core's own digest of its state (SHARD-4.9).
type digester interface{ Digest() uint64 }

func (p *process) digest() uint64 {
	if d, ok := any(p.core).(digester); ok && len(p.tape)%64 == 0 {
		return d.Digest()
	}
	return 0
}

// rearm sets the alarm clock to what the core wants.
func (p *process) rearm() {
	at, ok := p.core.NextWake()
	if !ok || at == p.armed {
		return
	}
	p.armed = at
	p.alarm++
	mine := p.alarm
	p.w.at(p.virtual(at), func() {
		if mine == p.alarm && !p.dead && !p.frozen {
			p.armed = 0
			p.step(core.Tick{})
		}
	})
}

// apply carries out one effect, as the shell would.
func (p *process) apply(x core.Effect) {
	w := p.w
	switch x := x.(type) {
	case core.Command:
		p.send(x)
	case core.GetMachine:
		w.providerNamed(x.Provider).get(p, x)
	case core.ListMachines:
		w.providerNamed(x.Provider).list(p, x)
	case core.PullBootstrap:
		if !p.notify(x, func(o *operator) { o.pulled(x) }) {
			w.after(millisecond, func() {
				p.step(core.BootstrapAnswered{Request: x.Request, Cluster: x.Cluster, Session: x.Session, Undeliverable: true})
			})
		}
	case core.DropBlob:
		delete(p.blobs, x.Request)
	case core.SendReclaim:
		p.notify(x, func(o *operator) { o.notified(x) })
	case core.SendNodeState:
		p.notify(x, func(o *operator) { o.nodeState(x) })
	case core.SendAck:
		p.notify(x, func(o *operator) { o.acked(x) })
	case core.SendHint, core.SendNeedStatus:
		p.notify(x, func(*operator) {}) // advice; nothing in a cluster acts on it
	case core.CloseSession:
		if c := p.conns[x.Cluster]; c != nil && c.session == x.Session {
			c.serverCloses(x.Reason)
		}
	case core.Persist:
		p.unsaved = append(p.unsaved, x)
		if len(p.unsaved) == 1 {
			w.after(w.net.between(millisecond, second), func() { p.save(len(p.unsaved)) })
		}
	case *core.Publish:
		p.publish = x
		if p.compare.Due(p.at().Mono, x.Status.Cycle) {
			p.core.CompareNext(inventory.NewFreezeBuffer(0))
		}
	case core.Superseded:
		p.halted = true
	case core.AdminAnswer:
		p.s.answered(p, x)
	case core.AckInstruction:
		p.unstored = append(p.unstored, word{ack: &x, store: x.Store})
	case core.Notice:
		if len(x.GivenBack) > 0 {
			p.unstored = append(p.unstored, word{given: x.GivenBack, store: x.Store})
		}
	case *core.ComparePlan:
		if where := x.Difference(); where != "" {
			w.after(w.net.between(millisecond, second), func() { p.step(core.PlanDiffered{Cycle: x.Cycle, Where: where}) })
		}
	case core.Record, core.Sample, core.WakeAt:
	}
}

// save writes the oldest hints to the disk.
func (p *process) save(n int) {
	if !p.owns {
		p.unsaved = nil // it has a disk of its own, which is never read again
	}
	for _, x := range p.unsaved[:min(n, len(p.unsaved))] {
		p.s.disk.put(x)
	}
	p.unsaved = slices.Delete(p.unsaved, 0, min(n, len(p.unsaved)))
}

// replay runs the recorded events through a fresh core. Equal history, equal effects (SHARD-4.1, 28.2).
func (p *process) replay() {
	if !p.w.Replay || len(p.tape) == 0 {
		return
	}
	c := core.New(p.w.policy)
	for i, t := range p.tape {
		sum := newDigest()
		for _, x := range c.Step(t.at, t.e) {
			sum.effect(x)
		}
		if sum.sum() != t.sum {
			p.w.broken("replay-differs", "SHARD-4.9", "", "", "event %d of %s, a %s, has other effects when replayed", i, p.name, core.KindOf(t.e))
			return
		}
		if d, ok := any(c).(digester); ok && t.deep != 0 && d.Digest() != t.deep {
			p.w.broken("replay-differs", "SHARD-4.9", "", "", "event %d of %s leaves another state when replayed", i, p.name)
			return
		}
	}
	p.w.tally.Replayed += len(p.tape)
	p.tape = nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
