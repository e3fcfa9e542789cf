package core

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// twoProviders is a world with a cheap provider p and a dearer one q, n slots each.
func twoProviders(t *testing.T, n int) *world {
	var machines []inventory.Machine
	for i := range n {
		p, q := slot(fmt.Sprintf("p%02d", i)), slot(fmt.Sprintf("q%02d", i))
		q.Provider, q.Price = "q", 2_000_000
		machines = append(machines, p, q)
	}
	w := newWorld(t, func(c *Config) { c.Providers = []string{"p", "q"} }, machines...)
	w.dead = map[string]bool{}
	w.connect("red")
	w.run(Second)
	return w
}

func (w *world) bound(provider string) (n int) {
	for _, m := range w.provider {
		if m.Provider == provider && m.State == inventory.Configured {
			n++
		}
	}
	return n
}

// lastStatus is what the operator of a cluster heard last of a row.
func (w *world) lastStatus(cluster, row string) (s SendNeedStatus) {
	for _, x := range sentOf[SendNeedStatus](w) {
		if x.Cluster == cluster && x.RowID == row {
			s = x
		}
	}
	return s
}

// SHARD-14.15: when the cheapest provider dies, needs are served from the others within five seconds of its breaker opening,
// and its supply comes back once it answers.
func TestSupplyOfADeadProviderIsWithheld(t *testing.T) {
	w := twoProviders(t, 40)
	w.dead["p"] = true
	w.rollup("red", needs(0, 80))
	for w.c.providers[0].Breaker.Trips == 0 {
		w.run(10 * Millisecond)
		if w.mono > Minute {
			t.Fatal("the breaker does not open")
		}
	}
	w.run(5 * Second)
	if n := w.bound("q"); n != 20 {
		t.Errorf("%d of 20 machines come from the healthy provider within 5 s of the breaker opening", n)
	}
	w.run(5 * Minute)
	if n := w.bound("q"); n != 20 {
		t.Errorf("%d machines of the healthy provider serve, 20 are needed", n)
	}
	w.dead["p"] = false
	w.run(2 * Minute)
	w.rollup("red", needs(0, 100))
	w.run(Minute)
	if w.bound("p") == 0 {
		t.Error("the cheap provider is not used again although it answers")
	}
	if n := w.bound("p") + w.bound("q"); n != 25 {
		t.Errorf("%d machines serve in the end, 25 are needed", n)
	}
}

// SHARD-14.12: while a provider is dead, commands that cannot wait are let through ever more rarely. What ends the pause is a List that ends well after none did,
// whatever happened to those before: they failed at once, or no connection came about.
func TestTheReturnOfAProviderIsSeenByItsList(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			w := twoProviders(t, 20)
			w.rollup("red", needs(0, 40))
			w.run(Minute)
			if n := w.bound("p"); n != 10 {
				t.Fatalf("%d machines of p serve", n)
			}
			w.dead["p"] = true
			if hangs {
				w.unanswered = map[string]bool{"p": true}
			}
			w.rollup("red", needs(0, 4)) // machines of p are to be drained: commands that cannot wait
			b := &w.c.providers[0].Breaker
			for b.Until-w.c.now < 40*Second {
				if w.run(Second); w.mono > 2*Hour {
					t.Fatalf("the breaker never pauses for long: %+v", *b)
				}
			}
			w.rollup("red", needs(0, 160)) // all there is
			w.run(5 * Second)
			w.dead["p"], w.unanswered = false, nil
			bound := w.bound("p")
			w.run(20 * Second) // a dial that began before, a List's retry, and the machine
			if n := w.bound("p"); n <= bound {
				t.Errorf("p answers again since 20 s, and %d of its machines serve as before; its breaker: %+v", n, *b)
			}
		})
	}
}

// SHARD-14.12, OPS-9.5: the alert ShardBreakerOpen asks whether the breaker was not closed for ten minutes. It is not closed for as long as an outage lasts, also while
// no Need asks for the provider. After an outage it closes although none does.
func TestTheBreakerShowsAnOutageAndOnlyThat(t *testing.T) {
	for _, lists := range []bool{false, true} {
		t.Run(fmt.Sprint("Lists are answered ", lists), func(t *testing.T) {
			w := twoProviders(t, 20)
			shows := func() int { return w.c.pub.status().Providers[0].Breaker }
			refuses := true
			w.reply = func(x Command) (Code, bool) {
				if x.Provider == "p" && refuses {
					return CodeUnavailable, false
				}
				return CodeOK, true
			}
			w.dead["p"] = !lists
			w.rollup("red", needs(0, 160)) // all there is
			for shows() == 0 {
				if w.run(Second); w.mono > Minute {
					t.Fatal("the breaker does not open")
				}
			}
			for n := range 20 * 60 {
				if !lists && n == 60 {
					w.rollup("red", nil) // no Need asks for it
				}
				if w.run(Second); shows() == 0 {
					t.Fatalf("the breaker is closed %d s after it opened", n)
				}
			}
			refuses, w.dead["p"] = false, false
			w.rollup("red", nil)
			w.run(7 * Minute)
			if n := shows(); n != 0 {
				t.Errorf("the provider answers again since 7 minutes, and its breaker shows %d", n)
			}
		})
	}
}

// SHARD-14.12: of many calls that are under way when a provider dies, those that fail after the breaker opened do not make its pause longer.
func TestCallsUnderWayMakeNoPauseLonger(t *testing.T) {
	w := twoProviders(t, 40)
	w.dead["p"] = true
	w.rollup("red", needs(0, 160)) // forty commands at once
	b := &w.c.providers[0].Breaker
	for b.Trips == 0 {
		if w.run(10 * Millisecond); w.mono > Minute {
			t.Fatal("the breaker does not open")
		}
	}
	w.run(Second)
	if pause := b.Until - b.Tripped; b.Trips != 1 || pause > 6*Second {
		t.Errorf("the breaker opened %d times, and pauses for %d s", b.Trips, pause/Second)
	}
}

// SHARD-14.12: a provider whose Lists are answered and whose commands fail is asked ever more rarely: its Lists end no pause.
func TestListsThatGoOnEndNoPause(t *testing.T) {
	w := twoProviders(t, 20)
	asked := 0
	w.reply = func(x Command) (Code, bool) {
		if x.Provider == "p" {
			asked++
			return CodeUnauthenticated, false
		}
		return CodeOK, true
	}
	w.rollup("red", needs(0, 100)) // more than q has
	w.run(10 * Minute)
	before := asked
	w.run(10 * Minute)
	if n := asked - before; n > 14 || n == 0 {
		t.Errorf("%d commands in ten minutes, with pauses of a minute", n)
	}
}

// SHARD-14.15, 23.8: with no other supply the need is short, and the reason names the provider. Nothing of it counts as met.
func TestDeadProviderIsNamed(t *testing.T) {
	w := newWorld(t, nil, slotsOf(30)...)
	w.dead = map[string]bool{"p": true}
	w.dead["p"] = false
	w.connect("red")
	w.run(Second)
	w.dead["p"] = true
	w.rollup("red", needs(0, 80))
	w.run(Minute)
	row := w.view.Needs[0].Rows[0]
	if !row.Unmet() || row.Detail() != DetailProviderBreaker || !strings.Contains(row.Text(), "provider p") {
		t.Errorf("the row says %d, %q; unmet: %v", row.Detail(), row.Text(), row.Unmet())
	}
	if s := &w.view.Status; s.Short != 1 || s.OldestAge < 30*Second {
		t.Errorf("%d needs are unmet, the oldest for %d s", s.Short, s.OldestAge/Second)
	}
	if s := w.lastStatus("red", "row0"); s.Satisfied || s.Detail != DetailProviderBreaker {
		t.Errorf("the operator heard %+v", s)
	}
}

// SHARD-14.15, 12.4: what lists nothing for longer than an inventory may be old is not bought from.
func TestSupplyBehindAStaleInventoryIsWithheld(t *testing.T) {
	w := twoProviders(t, 4)
	w.dead["p"] = true // nothing is asked of it but Lists: its breaker stays closed
	w.run(staleInventory + Minute)
	w.dead["p"] = false
	w.listErr = true
	w.rollup("red", needs(0, 8, 12))
	w.run(10 * Second)
	if row := w.view.Needs[0].Rows[1]; row.Detail() != DetailProviderDown || !strings.Contains(row.Text(), "provider p has not listed") {
		t.Errorf("the row that q cannot serve says %d, %q", row.Detail(), row.Text())
	}
	if w.bound("q") == 0 || w.bound("p") != 0 {
		t.Errorf("%d machines of p and %d of q serve; p has not been listed for six minutes", w.bound("p"), w.bound("q"))
	}
}

// SHARD-23.8: a rate and a ceiling of its cluster hold a need back as a pause does, and the reason names the limit.
func TestLimitsHoldBack(t *testing.T) {
	for _, x := range []struct {
		name   string
		edit   func(*Config)
		detail int32
		says   string
	}{
		{"rate", func(c *Config) { c.ProvisionRate = 1 }, DetailRail, "--provision-rate allows 1 Creates per minute"},
		{"ceiling", func(c *Config) { c.ClusterMachinesMax = 1 }, DetailLimit, "1"},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, x.edit, slotsOf(7)...)
			w.connect("red")
			w.run(Second)
			w.rollup("red", needs(0, 28))
			w.run(50 * Second)
			row := w.view.Needs[0].Rows[0]
			if !row.Unmet() || row.Detail() != x.detail || !strings.Contains(row.Text(), x.says) {
				t.Errorf("the row says %d, %q; unmet: %v", row.Detail(), row.Text(), row.Unmet())
			}
			if s := &w.view.Status; s.Short != 1 || s.HeldBack != 1 || s.OldestAge < 30*Second {
				t.Errorf("%d unmet, %d held back, the oldest for %d s", s.Short, s.HeldBack, s.OldestAge/Second)
			}
			if got := w.lastStatus("red", "row0"); got.Satisfied || got.Detail != x.detail {
				t.Errorf("the operator heard %+v", got)
			}
		})
	}
}

// SHARD-23.8: a pause and a dry run hold needs back: they are unmet from the moment on in which their machines would have been
// bought, in verdicts, counts, ages and what operators hear, and the reason names who paused.
func TestHeldBackIsUnmet(t *testing.T) {
	for _, x := range []struct {
		name string
		ask  AdminAsked
		says string
	}{
		{"pause", AdminAsked{Command: AdminPause, Pause: &Pause{ID: "p1", Actor: "ann", Reason: "deploy freeze", Created: 1_800_000_000 * Second}}, "paused by ann"},
		{"dry run", AdminAsked{Command: AdminDryRun, DryRun: true}, "dry run"},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, nil, slotsOf(7)...)
			w.connect("red")
			w.run(Second)
			w.step(x.ask)
			w.rollup("red", needs(0, 28))
			w.run(2 * Minute)
			row := w.view.Needs[0].Rows[0]
			if !row.Unmet() || row.Detail() != DetailPaused || !strings.Contains(row.Text(), x.says) {
				t.Errorf("the row says %d, %q; unmet: %v", row.Detail(), row.Text(), row.Unmet())
			}
			s := &w.view.Status
			if s.Short != 1 || s.HeldBack != 1 || s.OldestAge < Minute || w.view.Clusters[0].Short != 1 {
				t.Errorf("%d unmet, %d held back, the oldest for %d s, %d in its cluster", s.Short, s.HeldBack, s.OldestAge/Second, w.view.Clusters[0].Short)
			}
			if got := w.lastStatus("red", "row0"); got.Satisfied || !strings.Contains(got.Text, x.says) {
				t.Errorf("the operator heard %+v", got)
			}
			if x.ask.Command == AdminPause {
				w.step(AdminAsked{Command: AdminResume, PauseID: "p1"})
			} else {
				w.step(AdminAsked{Command: AdminDryRun})
			}
			w.run(Minute)
			if s := &w.view.Status; s.Short != 0 || s.HeldBack != 0 || s.OldestAge != 0 {
				t.Errorf("afterwards %d are unmet, %d held back, the oldest for %d s", s.Short, s.HeldBack, s.OldestAge/Second)
			}
			if n := w.bound("p"); n != 7 {
				t.Errorf("%d machines serve", n)
			}
		})
	}
}
