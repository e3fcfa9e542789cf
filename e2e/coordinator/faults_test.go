package coordinator

import (
	"context"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-21.9, 6.4.1: the leader is killed under write load, again and again. Every acknowledged write is committed
// exactly once, the history of all clients is linearizable, and the three replicas end with the same bytes.
func TestLeaderKilledUnderLoad(t *testing.T) {
	kills := number(t, "BIGFLEET_COORDINATOR_KILLS", 5)
	g := newGroup(t)
	l := g.load(4, 2)
	l.progress(0)
	var gaps []time.Duration
	for range kills {
		leads := g.leader()
		time.Sleep(200 * time.Millisecond) // a stretch of load between kills
		at := time.Duration(l.now())
		g.procs[leads].Kill()
		l.progress(time.Duration(l.now()))
		gaps = append(gaps, l.longestSilence(at))
		g.start(leads)
		g.healthy()
		l.audits()
	}
	l.check(t)
	g.agree()
	publishGaps(t, "kill -9 of the leader", gaps, len(l.acked), time.Second)
}

// COORD-21.14, 6.4.2: the leader is asked to end under write load. It hands over first.
func TestLeaderRestartedGracefullyUnderLoad(t *testing.T) {
	g := newGroup(t)
	l := g.load(4, 2)
	l.progress(0)
	var gaps []time.Duration
	for range number(t, "BIGFLEET_COORDINATOR_KILLS", 4) {
		leads := g.leader()
		time.Sleep(200 * time.Millisecond)
		from := time.Duration(l.now())
		if err := g.procs[leads].Stop(); err != nil {
			t.Errorf("the leader did not end by itself: %v", err)
		}
		l.progress(time.Duration(l.now()))
		gaps = append(gaps, l.longestSilence(from))
		g.start(leads)
		g.healthy()
		l.audits()
	}
	l.check(t)
	g.agree()
	publishGaps(t, "graceful restart of the leader", gaps, len(l.acked), 100*time.Millisecond)
}

// longestSilence is the longest pause between two acknowledged writes since a moment.
func (l *load) longestSilence(from time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.acks)
	last, longest := from, time.Duration(0)
	for _, at := range l.acks {
		if at > from {
			longest = max(longest, at-last)
			last = at
		}
	}
	return longest
}

// COORD-21.10: the leader is stopped for a while and continues. Clients that ask it meanwhile get no stale read when it
// answers at last, and nothing is committed twice.
func TestLeaderPausedUnderLoad(t *testing.T) {
	g := newGroup(t)
	l := g.load(4, 2)
	l.progress(0)
	for range 3 {
		leads := g.leader()
		stub, leave := g.admin(leads)
		if err := g.procs[leads].Pause(); err != nil {
			t.Fatal(err)
		}
		next := g.leader(leads)
		l.progress(time.Duration(l.now()))
		asked := make(chan error, 1)
		go func() { asked <- l.read(stub, 100+leads) }() // it waits in the socket of the stopped process
		time.Sleep(time.Second)
		if err := g.procs[leads].Resume(); err != nil {
			t.Fatal(err)
		}
		<-asked
		leave()
		if now := g.leader(); now != next && now != leads {
			t.Logf("another election: %s leads", id(now))
		}
		g.healthy()
	}
	l.check(t)
	g.agree()
}

// COORD-21.11, 21.12: every kind of cut between the leader and the others, also one-way. At most one leader confirms
// reads at any moment, or the history would not be linearizable.
func TestPartitionsUnderLoad(t *testing.T) {
	g := newGroup(t)
	l := g.load(4, 2)
	l.progress(0)
	for _, kind := range []string{"out", "in", "both", "one follower", "half"} {
		leads := g.leader()
		a, b, c := id(leads), id((leads+1)%3), id((leads+2)%3)
		switch kind {
		case "out":
			g.links.set(a+">"+b, a+">"+c)
		case "in":
			g.links.set(b+">"+a, c+">"+a)
		case "both":
			g.links.set(a+">"+b, a+">"+c, b+">"+a, c+">"+a)
		case "one follower":
			g.links.set(a+">"+b, b+">"+a)
		case "half":
			g.links.set(b + ">" + a)
		}
		time.Sleep(time.Second)
		l.progress(time.Duration(l.now()))
		g.links.set()
		g.healthy()
	}
	l.check(t)
	g.agree()
}

// COORD-21.17, 5.2: the leader's disk is full in the middle of the load. It stops with an error instead of acknowledging
// what it could not store, the others continue, and with room again it comes back with its disk.
func TestLeaderWithAFullDisk(t *testing.T) {
	g := newGroup(t)
	l := g.load(4, 2)
	l.progress(0)
	leads := g.leader()
	full := unix.Rlimit{Cur: 0, Max: 1 << 40}
	if err := unix.Prlimit(g.procs[leads].PID(), unix.RLIMIT_FSIZE, &full, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.procs[leads].Exited():
	case <-time.After(60 * time.Second):
		t.Fatal("a replica whose disk is full goes on")
	}
	if code := g.procs[leads].ExitCode(); code == 0 {
		t.Error("it ended as if all was well")
	}
	l.progress(time.Duration(l.now()))
	g.start(leads)
	g.healthy()
	l.check(t)
	g.agree()
}

// COORD-21.4, 13.1: all three are killed at once and start again together.
func TestAllKilledAtOnce(t *testing.T) {
	g := newGroup(t)
	l := g.load(4, 2)
	l.progress(0)
	g.each(func(i int) { g.procs[i].Kill() })
	g.each(func(i int) { g.start(i) })
	g.healthy()
	l.progress(time.Duration(l.now()))
	l.check(t)
	g.agree()
}

// COORD-17.2, 6.1.1: a leader lost and found: the fencing term only grows, over every change of leader.
func TestFencingTermGrows(t *testing.T) {
	g := newGroup(t)
	last := int64(0)
	for range 3 {
		leads := g.leader()
		s, err := g.status(leads)
		if err != nil {
			t.Fatal(err)
		}
		if s.GetFencingTerm() <= last {
			t.Fatalf("term %d after %d", s.GetFencingTerm(), last)
		}
		last = s.GetFencingTerm()
		stub, leave := g.admin(leads)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if _, err := stub.TransferLeadership(ctx, connect.NewRequest(&v1.TransferLeadershipRequest{})); err != nil {
			t.Error(err)
		}
		cancel()
		leave()
		g.leader(leads)
	}
}
