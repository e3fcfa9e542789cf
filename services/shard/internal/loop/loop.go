// Package loop owns the one goroutine that steps the core.
//
// Everything the shell learns is pushed into a Source; the loop takes one event at a time, round robin over the sources
// that have something, adds the time, calls Step, and hands the effects on before it takes the next. The
// order in which events reach Step is the order of history.
//
// A source is bounded. When it is full its producer waits and no other does, so one chatty tenant slows itself only.
// Pages of provider lists are the bulk of all work: at most one of them goes between two other waiting events.
//
// What takes long the core hands out to be made beside the loop (beside.go). Until it is made, events that could change what it is made of wait in their sources.
//
// The package knows nothing about what the events mean and judges no effect. A panic in Step is fatal: OnPanic records
// the event, then the panic continues. Start at New and Loop.Run. Tests cite SHARD-4, SHARD-6.11 and SHARD-3.7.
package loop

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// Stepper is the core, or a fake of it in tests.
type Stepper interface {
	Step(core.At, core.Event) []core.Effect
}

// Config is what a Loop needs.
type Config struct {
	Core Stepper // required
	// Apply carries out the effects of one step. It runs on the loop's goroutine and must not block. The slice is valid
	// until it returns. Required.
	Apply func(core.At, core.Event, []core.Effect)
	// Beside returns, after a step, what is to be made beside the loop, and the event that is stepped when it is made, or nil. It runs once, on a goroutine of
	// its own. Until then an event is stepped only if Takes allows it; others wait in their sources, and so do visits and what is due. Both may be nil.
	Beside func() (work func(), ends core.Event)
	Takes  func(core.Event) bool
	// Arm returns the moment (Mono) at which the core next wants a Tick; called after each step. Required.
	Arm func() (mono int64, ok bool)
	// Before is called before each step, and an event that it returns is stepped first; then it is called again, until it returns none. May be nil.
	Before func(core.At) core.Event
	// OnPanic is called with the event whose Step panicked, before the panic continues. May be nil.
	OnPanic func(core.At, core.Event, any)
	// Observe is called after each step with how long it took, and for how long before it was made beside the loop what its event says is made. May be nil.
	Observe func(e core.Event, took, beside time.Duration)
	// Clock is the wall clock. Nil: the machine's.
	Clock func() time.Time
}

// Loop is the queue in front of the core and the goroutine behind it.
type Loop struct {
	cfg   Config
	start time.Time
	wake  chan struct{} // capacity 1

	mu     sync.Mutex
	ready  []*Source // sources with something, in turn order; bulk sources apart
	bulk   []*Source
	turn   bool // the last event taken was not bulk, so a bulk one may go next
	closed bool
	depths map[string]*depth // by name of sources
	aside  []*Source         // whose next item waits until what runs beside the loop is made
	ended  *Source           // of the event that says so

	beside sync.WaitGroup
	// Of what ran beside the loop, once its event is queued.
	lasted time.Duration
	failed any // what it panicked with

	stepping atomic.Bool
	making   atomic.Bool  // something beside the loop, until its event is stepped
	lastStep atomic.Int64 // Mono of the end of the last step
	waiting  atomic.Int64 // events queued
}

// depth counts what waits in all sources of one name.
type depth struct{ now, peak int }

// Source is one producer's bounded queue.
type Source struct {
	depth *depth
	loop  *Loop
	bulk  bool
	space chan struct{} // capacity 1: room was made

	max    int
	queue  []item
	queued bool // in a ready list
	closed bool
}

// item is an event, or a visit of the core between two steps.
type item struct {
	event core.Event
	visit func()
	done  chan struct{}
}

// New returns a loop whose Mono starts at zero now.
func New(c Config) *Loop {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	l := &Loop{cfg: c, start: time.Now(), wake: make(chan struct{}, 1), turn: true, depths: map[string]*depth{}}
	l.ended = l.Source("beside", 1, false)
	return l
}

// Source makes a queue of at most max events. Bulk sources yield to all others. Sources of one name are counted together.
func (l *Loop) Source(name string, max int, bulk bool) *Source {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.depths[name]
	if d == nil {
		d = &depth{}
		l.depths[name] = d
	}
	return &Source{depth: d, loop: l, bulk: bulk, max: max, space: make(chan struct{}, 1)}
}

// Peaks returns the most events that waited at once since the last call, by name of source.
func (l *Loop) Peaks() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]int, len(l.depths))
	for name, d := range l.depths {
		out[name], d.peak = d.peak, d.now
	}
	return out
}

// Now is the time that an event gets if it is taken now.
func (l *Loop) Now() core.At {
	return core.At{Mono: int64(time.Since(l.start)), Wall: l.cfg.Clock().UnixNano()}
}

// Push queues an event, waiting for room if need be. It answers false when ctx ended, or the source or loop is closed.
func (s *Source) Push(ctx context.Context, e core.Event) bool {
	return s.push(ctx, item{event: e})
}

// Visit runs f on the loop's goroutine between two steps and returns when it is done. f must be short: it holds up the
// core (SHARD-23.3).
func (s *Source) Visit(ctx context.Context, f func()) bool {
	done, ran := make(chan struct{}), false
	if !s.push(ctx, item{visit: func() { f(); ran = true }, done: done}) {
		return false
	}
	select {
	case <-done:
		return ran
	case <-ctx.Done():
		return false
	}
}

func (s *Source) push(ctx context.Context, it item) bool {
	for {
		s.loop.mu.Lock()
		switch {
		case s.closed || s.loop.closed:
			s.loop.mu.Unlock()
			signal(s.space) // the next producer that waits here sees it too
			return false
		case len(s.queue) < s.max:
			s.append(it)
			more := len(s.queue) < s.max
			s.loop.mu.Unlock()
			if more {
				signal(s.space) // several producers may share a source
			}
			signal(s.loop.wake)
			return true
		}
		s.loop.mu.Unlock()
		select {
		case <-s.space:
		case <-ctx.Done():
			return false
		}
	}
}

// TryPush queues an event if there is room.
func (s *Source) TryPush(e core.Event) bool {
	s.loop.mu.Lock()
	ok := !s.closed && !s.loop.closed && len(s.queue) < s.max
	if ok {
		s.append(item{event: e})
	}
	s.loop.mu.Unlock()
	if ok {
		signal(s.loop.wake)
	}
	return ok
}

func (s *Source) append(it item) {
	s.queue = append(s.queue, it)
	s.loop.waiting.Add(1)
	s.depth.now++
	s.depth.peak = max(s.depth.peak, s.depth.now)
	if !s.queued {
		s.queued = true
		if s.bulk {
			s.loop.bulk = append(s.loop.bulk, s)
		} else {
			s.loop.ready = append(s.loop.ready, s)
		}
	}
}

// Close drops what is queued and refuses more. A session's source ends with its session.
func (s *Source) Close() {
	s.loop.mu.Lock()
	s.closed = true
	s.loop.waiting.Add(-int64(len(s.queue)))
	s.depth.now -= len(s.queue)
	for _, it := range s.queue {
		if it.done != nil {
			close(it.done)
		}
	}
	s.queue = nil
	s.loop.mu.Unlock()
	signal(s.space)
}

// Depth is how many events wait in the source.
func (s *Source) Depth() int {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	return len(s.queue)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take removes the next item by the rule of turns.
func (l *Loop) take() (item, *Source, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		list := &l.ready
		if len(l.ready) == 0 || (l.turn && len(l.bulk) > 0) {
			list = &l.bulk
		}
		if len(*list) == 0 {
			return item{}, nil, false
		}
		s := (*list)[0]
		(*list)[0] = nil
		*list = (*list)[1:]
		if len(s.queue) == 0 { // closed meanwhile
			s.queued = false
			continue
		}
		if l.making.Load() && !l.mayStep(s.queue[0]) {
			l.aside = append(l.aside, s)
			continue
		}
		it := s.queue[0]
		s.queue[0] = item{}
		s.queue = s.queue[1:]
		l.waiting.Add(-1)
		s.depth.now--
		if len(s.queue) > 0 {
			*list = append(*list, s)
		} else {
			s.queued = false
		}
		l.turn = list == &l.ready
		return it, s, true
	}
}

// First applies an event before the loop runs, so that nothing can come before it.
func (l *Loop) First(e core.Event) { l.step(e) }

// Run steps the core until ctx ends. It returns nil then.
func (l *Loop) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer l.beside.Wait()
	defer l.close()
	for {
		l.arm(timer)
		for since := 1; ; since++ {
			it, s, ok := l.take()
			if !ok {
				break
			}
			signal(s.space)
			switch {
			case it.visit != nil:
				it.visit()
				close(it.done)
			case s == l.ended:
				l.one(it.event, true)
			default:
				l.step(it.event)
			}
			if ctx.Err() != nil {
				return nil
			}
			if since >= eventsForTick || l.waiting.Load() == 0 {
				l.tick()
				since = 0
			}
		}
		l.arm(timer)
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-timer.C:
			l.tick()
		}
	}
}

// eventsForTick is how many events that wait go before a Tick that is due. A Tick does what the core does in parts (SHARD-8.9), and each takes as long as many events.
const eventsForTick = 16

// tick steps the core with a Tick, if one is due.
func (l *Loop) tick() {
	if at, armed := l.cfg.Arm(); armed && at <= l.Now().Mono {
		l.step(core.Tick{})
	}
}

func (l *Loop) arm(t *time.Timer) {
	if at, ok := l.cfg.Arm(); ok {
		t.Reset(max(0, time.Duration(at-l.Now().Mono)))
	}
}

// step steps the core with an event, behind those that have to come before it.
func (l *Loop) step(e core.Event) {
	if l.cfg.Before != nil && !l.making.Load() {
		for first := l.cfg.Before(l.Now()); first != nil; first = l.cfg.Before(l.Now()) {
			l.one(first, false)
		}
	}
	l.one(e, false)
}

// one steps the core with an event. With made it is the one of what was made beside the loop.
func (l *Loop) one(e core.Event, made bool) {
	at := l.Now()
	at.Ended = l.lastStep.Load()
	if l.cfg.OnPanic != nil {
		defer func() {
			if p := recover(); p != nil {
				l.cfg.OnPanic(at, e, p)
				panic(p)
			}
		}()
	}
	beside := time.Duration(0)
	if made {
		beside = l.made()
	}
	l.stepping.Store(true)
	effects := l.cfg.Core.Step(at, e)
	l.cfg.Apply(at, e, effects)
	l.stepping.Store(false)
	end := l.Now().Mono
	l.lastStep.Store(end)
	if l.cfg.Observe != nil {
		l.cfg.Observe(e, time.Duration(end-at.Mono), beside)
	}
	l.runBeside()
}

func (l *Loop) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, list := range [][]*Source{l.ready, l.bulk, l.aside} {
		for _, s := range list {
			for _, it := range s.queue {
				if it.done != nil {
					close(it.done)
				}
			}
			s.depth.now -= len(s.queue)
			s.queue = nil
			signal(s.space)
		}
	}
	l.waiting.Store(0)
}

// GiveWay waits for the end of the step that runs, or of what is made beside the loop, for two milliseconds at most. Work beside the loop that takes long calls it now and then: on a machine with few processors
// the step, for which others wait, would take as long again (ADR 1002).
func (l *Loop) GiveWay() {
	for k := 0; k < 2 && (l.stepping.Load() || l.making.Load()); k++ {
		time.Sleep(time.Millisecond)
	}
}

// Stalled reports whether events wait and no step has ended for the given time (SHARD-30.3).
func (l *Loop) Stalled(limit time.Duration) bool {
	return l.waiting.Load() > 0 && l.Now().Mono-l.lastStep.Load() > int64(limit)
}
