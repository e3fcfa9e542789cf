package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a core that notes what it was given.
type recorder struct {
	mu   sync.Mutex
	seen []string
	wake int64
	hold chan struct{} // each step waits for it, if set
}

func (r *recorder) Step(_ core.At, e core.Event) []core.Effect {
	if r.hold != nil {
		<-r.hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := e.(type) {
	case core.SessionClosed:
		r.seen = append(r.seen, e.Cluster)
	case core.Tick:
		r.seen = append(r.seen, "tick")
		r.wake = 0 // a core asks for a later moment, or for none
	default:
		r.seen = append(r.seen, core.KindOf(e).String())
	}
	return nil
}

func (r *recorder) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func start(t *testing.T, r *recorder) (*Loop, func()) {
	l := New(Config{Core: r, Apply: func(core.At, core.Event, []core.Effect) {}, Arm: func() (int64, bool) { return r.wake, r.wake > 0 }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	return l, func() {
		go func() { done <- l.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
	}
}

// SHARD-6.11: while something is made beside the loop, only what may come before its event is stepped. All else waits in its source and goes on in its turn; visits wait, and
// what has to come first is not asked for.
func TestWhatIsMadeBesideTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, made, begin := &recorder{}, make(chan struct{}), true
		var l *Loop
		besides := func() bool { return slices.Contains(r.got(), "a") && !slices.Contains(r.got(), "part_made") }
		l = New(Config{Core: r, Apply: func(core.At, core.Event, []core.Effect) {},
			Arm: func() (int64, bool) {
				return 1, !besides() && slices.Contains(r.got(), "part_made") && !slices.Contains(r.got(), "tick")
			},
			Before: func(core.At) core.Event {
				if besides() {
					t.Error("asked for what comes first")
				}
				return nil
			},
			Beside: func() (func(), core.Event) {
				if !begin {
					return nil, nil
				}
				begin = false
				return func() { <-made }, core.PartMade{}
			},
			Takes: func(e core.Event) bool {
				_, is := e.(core.RollupArrived)
				return is || e == core.Event(core.PartMade{})
			},
		})
		a, b, c, pages := l.Source("a", 9, false), l.Source("b", 9, false), l.Source("c", 9, false), l.Source("pages", 9, true)
		a.TryPush(named("a"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		if l.GiveWay(); time.Since(began) != 2*time.Millisecond {
			t.Errorf("other work waited %s", time.Since(began))
		}
		a.TryPush(named("a2"))
		a.TryPush(core.RollupArrived{})
		pages.TryPush(named("page"))
		b.TryPush(core.RollupArrived{})
		visited := false
		go c.Visit(t.Context(), func() { visited = true })
		synctest.Wait()
		if got, want := fmt.Sprint(r.got()), "[a rollup_arrived]"; got != want || visited {
			t.Errorf("seen %s, want %s; visited: %v", got, want, visited)
		}
		close(made)
		synctest.Wait()
		if got, want := fmt.Sprint(r.got()), "[a rollup_arrived part_made page a2 rollup_arrived tick]"; got != want || !visited {
			t.Errorf("seen %s, want %s; visited: %v", got, want, visited)
		}
		cancel()
		<-done
	})
}

// SHARD-3.7: a panic of what is made beside the loop is one of its event.
func TestPanicBesideTheLoop(t *testing.T) {
	r, begin := &recorder{}, true
	var at core.Event
	l := New(Config{Core: r, Apply: func(core.At, core.Event, []core.Effect) {}, Arm: func() (int64, bool) { return 0, false },
		OnPanic: func(_ core.At, e core.Event, _ any) { at = e },
		Beside: func() (func(), core.Event) {
			if !begin {
				return nil, nil
			}
			begin = false
			return func() { panic("broken plan") }, core.PartMade{}
		},
		Takes: func(core.Event) bool { return true },
	})
	l.Source("a", 1, false).TryPush(named("a"))
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "broken plan") || !strings.Contains(p, "loop_test.go") || at != core.Event(core.PartMade{}) {
			t.Errorf("panic %.200s at %v", p, at)
		}
	}()
	_ = l.Run(t.Context())
}

// SHARD-3.9: a loop that ends does not leave behind what is made beside it.
func TestLoopWaitsForWhatIsBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin, made := &recorder{}, true, false
		l := New(Config{Core: r, Apply: func(core.At, core.Event, []core.Effect) {}, Arm: func() (int64, bool) { return 0, false },
			Beside: func() (func(), core.Event) {
				if !begin {
					return nil, nil
				}
				begin = false
				return func() { time.Sleep(time.Second); made = true }, core.PartMade{}
			},
			Takes: func(core.Event) bool { return true },
		})
		l.Source("a", 1, false).TryPush(named("a"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if err := l.Run(ctx); err != nil || !made {
			t.Errorf("ended with %v, made: %v", err, made)
		}
	})
}

func named(s string) core.Event { return core.SessionClosed{Cluster: s} }

// SHARD-4.8: sources take turns, and between two other waiting events at most one page of a List goes.
func TestSourcesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		l, run := start(t, r)
		a, b, pages := l.Source("a", 9, false), l.Source("b", 9, false), l.Source("pages", 9, true)
		for i := range 3 {
			a.TryPush(named(fmt.Sprintf("a%d", i)))
			pages.TryPush(named(fmt.Sprintf("p%d", i)))
		}
		b.TryPush(named("b0"))
		run()
		synctest.Wait()
		if got, want := fmt.Sprint(r.got()), "[p0 a0 p1 b0 p2 a1 a2]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
	})
}

// SHARD-4.8: a full source blocks its own producer only.
func TestFullSourceBlocksItselfOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{hold: make(chan struct{})}
		l, run := start(t, r)
		full, other := l.Source("full", 1, false), l.Source("other", 1, false)
		run()
		pushed := 0
		go func() {
			for range 4 {
				if full.Push(t.Context(), named("full")) {
					pushed++
				}
			}
		}()
		synctest.Wait()
		if pushed >= 4 {
			t.Fatal("a full source took everything")
		}
		if !other.TryPush(named("other")) {
			t.Fatal("another source was blocked")
		}
		close(r.hold)
		synctest.Wait()
		if got := r.got(); len(got) != 5 {
			t.Errorf("seen %v", got)
		}
	})
}

// SHARD-4.5: the loop sends Tick at the moment the core asked for.
func TestTickComesWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{wake: int64(10 * time.Second)}
		_, run := start(t, r)
		run()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if len(r.got()) != 0 {
			t.Fatal("too early")
		}
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if got := r.got(); fmt.Sprint(got) != "[tick]" {
			t.Errorf("seen %v", got)
		}
	})
}

// SHARD-4.8: a Tick that is due goes when no event waits, and after sixteen at the latest: what the core does in parts holds up no event for longer than one
// part, and events hold it up for sixteen of them.
func TestTickThatIsDueWaitsForEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{wake: 1}
		l, run := start(t, r)
		a, b := l.Source("a", 20, false), l.Source("b", 20, false)
		for range 20 {
			a.TryPush(named("a"))
		}
		b.TryPush(named("b"))
		time.Sleep(time.Second)
		run()
		synctest.Wait()
		if got := r.got(); slices.Index(got, "tick") != 16 || len(got) != 22 {
			t.Errorf("seen %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{wake: 1}
		l, run := start(t, r)
		l.Source("a", 20, false).TryPush(named("a"))
		time.Sleep(time.Second)
		run()
		synctest.Wait()
		if got := r.got(); fmt.Sprint(got) != "[a tick]" {
			t.Errorf("seen %v", got)
		}
	})
}

// Work beside the loop waits for the step that runs, and no longer than two milliseconds.
func TestGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{hold: make(chan struct{})}
		l, run := start(t, r)
		wait := func() time.Duration {
			began := time.Now()
			l.GiveWay()
			return time.Since(began)
		}
		if d := wait(); d != 0 {
			t.Errorf("waited %s for no step", d)
		}
		l.Source("a", 1, false).TryPush(named("a"))
		run()
		synctest.Wait()
		if d := wait(); d != 2*time.Millisecond {
			t.Errorf("waited %s for a step that goes on", d)
		}
		close(r.hold)
		synctest.Wait()
		if d := wait(); d != 0 {
			t.Errorf("waited %s for a step that is over", d)
		}
	})
}

// A visit runs between steps, behind what was pushed to its source before, and says whether it ran.
func TestVisit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		l, run := start(t, r)
		s := l.Source("s", 4, false)
		s.TryPush(named("before"))
		run()
		var at int
		if !s.Visit(t.Context(), func() { at = len(r.got()) }) || at != 1 {
			t.Errorf("visited after %d steps", at)
		}
		s.Close()
		if s.Visit(t.Context(), func() { t.Error("ran on a closed source") }) {
			t.Error("a closed source was visited")
		}
	})
}

// SHARD-10.12: what has to come first is asked for before each step, until there is nothing.
func TestWhatComesFirstIsStepped(t *testing.T) {
	r, before := &recorder{}, []core.Event{core.DemandTooWide{}, core.DemandTooWide{}, nil, nil, core.DemandTooWide{}, nil}
	l := New(Config{Core: r, Apply: func(core.At, core.Event, []core.Effect) {}, Arm: func() (int64, bool) { return 0, false }, Before: func(core.At) core.Event {
		e := before[0]
		before = before[1:]
		return e
	}})
	for _, name := range []string{"a", "b", "c"} {
		l.First(core.SessionClosed{Cluster: name})
	}
	if got, want := r.got(), []string{"demand_too_wide", "demand_too_wide", "a", "b", "demand_too_wide", "c"}; !slices.Equal(got, want) {
		t.Errorf("steps %v, want %v", got, want)
	}
}
