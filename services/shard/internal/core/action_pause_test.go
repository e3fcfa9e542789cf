package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Scenario 57, SHARD-19.5: while paused plans go on and nothing starts; the flag cannot be lifted by an order.
func TestPause(t *testing.T) {
	w := newWorld(t, nil, slotsOf(4)...)
	w.step(AdminAsked{Ask: 1, Command: AdminPause, Actor: "me", Reason: "look", Pause: &Pause{ID: "p1", Reason: "look"}})
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(10 * Minute)
	if len(w.calls) != 0 || len(sentOf[PullBootstrap](w)) != 0 {
		t.Errorf("%d calls while paused", len(w.calls))
	}
	if n := w.count(MetricSuppressed, "provision"); n != 2 {
		t.Errorf("%d suppressed; each counts once", n)
	}
	w.step(AdminAsked{Ask: 2, Command: AdminResume, PauseID: "flag", Reason: "x"})
	w.step(AdminAsked{Ask: 3, Command: AdminResume, PauseID: "p1", Reason: "x"})
	if w.answers[1].Code != CodeAborted || w.answers[2].Code != CodeOK {
		t.Errorf("answers %+v", w.answers)
	}
	w.run(Minute)
	if w.state(inventory.Configured) != 2 {
		t.Errorf("%d machines after the pause", w.state(inventory.Configured))
	}
}

// SHARD-19.6: a pause may be limited to kinds and may end by itself.
func TestPauseOfOneKindWithAnEnd(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(2, "red"), slotsOf(4)...)...)
	w.step(AdminAsked{Ask: 1, Command: AdminPause, Pause: &Pause{ID: "p1", Kinds: []Kind{KindReclaim}, TTL: 10 * Minute, Reason: "x"}})
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.rollup("blue", needs(0, 4))
	w.run(5 * Minute)
	if len(w.called(RPCDrain)) != 0 || len(w.called(RPCCreate)) != 1 {
		t.Errorf("drains %v, creates %v", w.called(RPCDrain), w.called(RPCCreate))
	}
	w.run(6 * Minute)
	if len(w.called(RPCDrain)) != 1 {
		t.Errorf("drains %v after the pause ended", w.called(RPCDrain))
	}
}

// SHARD-19.6: a pause that is set again for longer, shorter or forever ends when the last order says.
func TestPauseThatIsSetAgainEndsWhenItSays(t *testing.T) {
	for _, c := range []struct{ first, then, ends int64 }{{10 * Minute, 30 * Minute, 35 * Minute}, {30 * Minute, 10 * Minute, 15 * Minute}, {10 * Minute, 0, 0}} {
		w := newWorld(t, nil, slotsOf(4)...)
		set := func(ttl int64) {
			w.step(AdminAsked{Ask: 1, Command: AdminPause, Pause: &Pause{ID: "p1", TTL: max(0, ttl-Second), Reason: "x"}})
		}
		set(c.first)
		w.run(5 * Minute)
		set(c.then)
		end := int64(0)
		for at := 6 * Minute; at <= Hour && end == 0; at += Minute {
			w.run(Minute)
			if len(w.c.ctl.Pauses) == 0 {
				end = at
			}
		}
		if end != c.ends {
			t.Errorf("%d min, after 5 min %d min: it ended after %d min", c.first/Minute, c.then/Minute, end/Minute)
		}
	}
}

// Scenario 58, SHARD-19.7: in dry run each intention is recorded once, and nothing happens.
func TestDryRun(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.DryRun = true }, slotsOf(4)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(Hour)
	if len(w.calls) != 0 || len(w.recorded(RecordDryRun)) != 2 {
		t.Errorf("%d calls, %d records", len(w.calls), len(w.recorded(RecordDryRun)))
	}
}
