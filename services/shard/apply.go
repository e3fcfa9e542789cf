package shard

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/store"
)

// apply carries out the effects of one step, in order, without judging or blocking (SHARD-5.2, 5.3). It runs on the
// loop's goroutine.
func (s *shell) apply(at core.At, e core.Event, effects []core.Effect) {
	s.keep(at, e)
	if r, is := e.(core.RollupArrived); is {
		s.suspects.seen(r.Hash)
	}
	if s.spans != nil {
		s.spans.Step(at, e, effects)
	}
	for _, f := range effects {
		if s.actuator.Apply(f) || s.sessions.Apply(f) {
			continue
		}
		switch f := f.(type) {
		case core.Persist:
			s.store.Hint(f.Bucket, f.Key, f.Value)
		case core.Record:
			s.audit.Record(&f)
			s.logRecord(&f)
		case core.Sample:
			if f.Metric == core.MetricShortfallLog {
				s.log.Info(f.Label1, "shortfalls", f.Value)
			} else {
				if f.Metric == core.MetricCycleLag { // up to the end of the cycle, which a core without a clock cannot know (SHARD-27.3)
					f.Value += s.loop.Now().Mono - at.Mono
				}
				s.meter.Sample(f)
			}
		case *core.Publish:
			s.publish(f)
		case core.AckInstruction:
			if s.reporter != nil {
				s.reporter.Ack(f)
			}
		case core.Notice:
			if s.reporter != nil {
				s.reporter.Notice(f)
			}
		case core.Superseded:
			why := "superseded"
			s.refusing.Store(&why)
			s.log.Error("superseded: another process has this shard's identity; this process starts no more actions", "err", f.Evidence)
		case core.CheckpointTaken:
			s.audit.Checkpoint(at, s.core.Steps(), f.State, s.core.Digest())
		case *core.ComparePlan:
			select {
			case s.comparisons <- f:
			default: // the previous one has not begun; the next follows at its time
			}
		case core.AdminAnswer:
			s.orders.Answer(f)
		}
	}
}

// digestEvery is how many events lie between two recorded digests (SHARD-4.9).
const digestEvery = 10_000

// keep hands the event to the decision log, in the reduced form that replays the step.
func (s *shell) keep(at core.At, e core.Event) {
	if !s.recording {
		return
	}
	digest := uint64(0)
	if s.core.Steps()%digestEvery == 0 {
		digest = s.core.Digest()
	}
	s.audit.Event(s.core.Steps(), at, s.core.Reduced(e), digest)
}

// publish swaps the view that readers see.
func (s *shell) publish(p *core.Publish) {
	p.Status.Plaintext = s.identity == nil
	if s.reporter != nil {
		_, p.Status.Coord.Error = s.reporter.State()
	}
	s.view.Store(p)
	select {
	case s.shown <- struct{}{}:
	default: // the gauges have not taken the previous one either
	}
	if p.Status.Listed && !s.saidReady {
		s.saidReady = true
		s.log.Info("the shard is ready: each provider has been listed once", "machines", p.Status.Machines)
	}
	if p.Status.Cycle != s.shownCycle {
		s.shownCycle = p.Status.Cycle
		s.reads.Remember(p, s.core)
		s.meter.Planned(&p.Status.Counters)
		if s.PhaseAttributionLog && p.Status.Cycle%attributeEvery == 0 {
			s.attribute(p)
		}
	}
}

// observe measures a step; one that ran a cycle, or used a plan that was made beside the loop, is a cycle.
func (s *shell) observe(e core.Event, d, beside time.Duration) {
	s.meter.Step(e, d)
	if s.core.Cycle() == s.lastCycle {
		return
	}
	s.lastCycle = s.core.Cycle()
	s.suspects.cleared(s.core.TakesIn)
	d += beside
	s.cycleTook.Store(int64(d))
	if s.lastCycle > int64(s.MetricsWarmupCycles) {
		s.meter.Cycle(d)
		s.phases.observe(s.meter)
	}
}

// panicked records what is needed to find the defect. State after a panic is not trusted, so the process ends
// (SHARD-3.7). A roll-up that did it is refused for a day after the restart (SHARD-3.8).
func (s *shell) panicked(at core.At, e core.Event, p any) {
	s.log.Error("the core failed; the process exits, and its successor rebuilds the state from providers and operators",
		"event", core.KindOf(e).String(), "err", fmt.Sprint(p))
	if s.recording {
		s.audit.Event(s.core.Steps()+1, at, e, 0)
		s.audit.Sync(2 * time.Second)
	}
	if r, ok := e.(core.RollupArrived); ok && r.Hash != "" {
		if err := s.store.Put(core.BucketPoison, r.Hash, codec.Marshal(poisonNote{Until: time.Now().Add(poisonTime).Unix()})); err != nil {
			s.log.Error("the roll-up that made the core fail could not be marked as refused", "cluster", r.Cluster, "err", err)
		}
	}
}

type poisonNote struct {
	Until int64 `n:"1"` // Unix seconds
}

// logRecord writes the records that people look for in the log.
func (s *shell) logRecord(r *core.Record) {
	level := slog.LevelDebug
	switch r.Type {
	case core.RecordSessionOpened, core.RecordSessionClosed:
		return // package session has logged it with more detail
	case core.RecordStarted, core.RecordEnded, core.RecordGateOpened, core.RecordAdmin, core.RecordInstruction, core.RecordOwnership,
		core.RecordMachineRecovered, core.RecordDryRun:
		level = slog.LevelInfo
	case core.RecordProcess:
		if r.Outcome == "" {
			return // start and stop: the shell and the process log these
		}
		level = slog.LevelError
	case core.RecordRollupHeld, core.RecordUnexpectedEdge, core.RecordMachineVanished, core.RecordMachineStuck, core.RecordMachineFailed, core.RecordInterruption,
		core.RecordBackoffChanged, core.RecordMachineRejected:
		level = slog.LevelWarn
	case core.RecordBindingConflict, core.RecordRemovalsHeld, core.RecordFence:
		level = slog.LevelError
	}
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	args := make([]any, 0, 24)
	add := func(key string, v string) {
		if v != "" {
			args = append(args, key, v)
		}
	}
	if r.Kind != 0 {
		add("kind", r.Kind.String())
	}
	add("machine", r.Machine)
	add("cluster", r.Cluster)
	add("provider", r.Provider)
	add("operation", r.Op)
	add("need", r.Fingerprint)
	if r.Cause != 0 {
		add("cause", r.Cause.String())
	}
	add("outcome", r.Outcome)
	add("actor", r.Actor)
	add("detail", r.Detail)
	s.log.Log(context.Background(), level, recordTitle(r.Type), args...)
}

func recordTitle(t core.RecordType) string {
	titles := [...]string{"", "operation started", "operation ended", "decision held: paused", "decision held: dry run",
		"roll-up accepted", "roll-up held", "roll-up rejected", "reclaim gate opened", "machine record rejected", "unexpected transition",
		"binding conflict", "machine vanished", "machine stuck", "machine failed", "machine recovered", "backoff changed", "removals held",
		"fence", "session opened", "session closed", "instruction", "order", "ownership", "defect", "interruption"}
	return titles[t]
}

// gaugeEvery is how soon after each other gauges are set from what the core publishes. With 5,000 clusters that is
// 10,000 series, which would delay the loop.
const gaugeEvery = 20 * time.Millisecond

// show sets the gauges from the newest publication.
func (s *shell) show(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.shown:
		}
		s.meter.Publish(s.view.Load())
		if s.reporter != nil {
			if answered, _ := s.reporter.State(); !answered.IsZero() {
				s.meter.LastReport(time.Since(answered))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gaugeEvery):
		}
	}
}

// gauge brings the gauges up to date that need a look at the shell's own parts.
func (s *shell) gauge(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var of uint64 // version of the inventory that was counted last
	for n := 0; ; n++ {
		if n%countEvery == 0 || s.view.Load().Status.Machines < countFewer {
			of = s.count(ctx, of, n%countAlways == 0)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.meter.Outboxes(s.sessions.Outboxes())
			s.meter.Queues(s.loop.Peaks())
		}
	}
}

// How machines are counted: in visits of the core of about half a millisecond each (SHARD-23.3), each second in a shard
// with fewer than countFewer machines and every fifth in larger ones, and only if any has changed; at the least once in
// 30 s, because some counts change with time alone.
const (
	countChunk  = 8192
	countFewer  = 20_000
	countEvery  = 5
	countAlways = 30
)

// count takes a census of the machines and returns the version of the inventory that it shows.
func (s *shell) count(ctx context.Context, last uint64, always bool) (of uint64) {
	var census core.Census
	for next := 0; next >= 0; {
		if !s.counts.Visit(ctx, func() {
			if next == 0 {
				of = s.core.InventoryVersion()
			}
			if of == last && !always {
				next = -1
				return
			}
			next = s.core.Count(&census, next, countChunk)
		}) {
			return last
		}
	}
	if of != last || always {
		s.meter.Census(&census)
	}
	return of
}

// loadStarted reads what must survive a restart into the first event.
func loadStarted(db *store.Store, now core.At, unknown func(bucket, key string, err error)) (e core.Started) {
	l := loader{db, now, unknown}
	c := &e.Control
	c.Pauses = l.pauses()
	c.Retired = l.names(core.BucketRetired)
	c.Forgotten = load[core.Forgotten](&l, core.BucketForgotten)
	c.Reservations = load[core.Reservation](&l, core.BucketReservations)
	l.control(c)
	e.Journal = load[core.JournalEntry](&l, core.BucketJournal)
	e.Poisoned = l.poisoned()
	e.Room = load[core.KeptRoom](&l, core.BucketRoom)
	return e
}
