package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// queue makes clusters wait for the only worker, one after the other, and returns the order in which they are let in.
func queue(t *testing.T, turns *turns, rounds int, waiting ...string) (order []string) {
	t.Helper()
	waits := func() int {
		turns.mu.Lock()
		defer turns.mu.Unlock()
		return len(turns.waiting)
	}
	let := make(chan string)
	enter := func(cluster string) {
		n, bytes := waits(), 16<<20
		if cluster == "small" {
			bytes = 100 << 10
		}
		go func() {
			if turns.enter(t.Context(), cluster, bytes) == nil {
				let <- cluster
			}
		}()
		for waits() == n {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if err := turns.enter(t.Context(), "other", 1); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range waiting {
		enter(cluster)
	}
	for range rounds {
		turns.leave()
		cluster := <-let
		order = append(order, cluster)
		enter(cluster) // it has the next one ready
	}
	return order
}

// SHARD-8.3: roll-ups of six clusters that send the largest, again and again, hold up a large one of another cluster by the one at work, and not by
// one of each of them.
func TestLargeRollupsTakeTurnsByBytes(t *testing.T) {
	worst := []string{"w1", "w2", "w3", "w4", "w5", "w6"}
	x := newTurns(1)
	if got := queue(t, x, 12, worst...); !slices.Equal(got, slices.Concat(worst, worst)) {
		t.Errorf("those that send as much are let in as %v", got)
	}
	x = newTurns(1)
	order := queue(t, x, 14, slices.Concat(worst, []string{"small"})...)
	at := slices.Index(order, "small")
	n := 0
	for _, cluster := range order {
		if cluster == "small" {
			n++
		}
	}
	if at > 6 || n < 7 { // it was last of those that had had nothing, and from then on it goes before each of the others
		t.Errorf("one that sends a hundredth of the others' bytes is let in as %v", order)
	}
	if len(x.given) > 7 {
		t.Errorf("%v is remembered", x.given)
	}
}

// A roll-up whose session ends gives back its place or its worker.
func TestTurnsOfEndedSessions(t *testing.T) {
	x := newTurns(1)
	if err := x.enter(t.Context(), "red", 1); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for i := range 100 {
		if err := x.enter(ctx, fmt.Sprint(i), 1); !errors.Is(err, gone) {
			t.Fatal(err)
		}
	}
	x.leave()
	if len(x.waiting) != 0 || x.free != 1 {
		t.Errorf("%d wait and %d workers are free", len(x.waiting), x.free)
	}
}
