package core

import (
	"testing"

	"pgregory.net/rapid"
)

// SHARD-19.3, 33.5.3: in every window no more tokens are taken than the capacity plus what the window refills.
func TestBucketNeverGivesMoreThanItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Int64Range(Second, Minute).Draw(t, "window")
		capacity := rapid.Int64Range(1, 50).Draw(t, "capacity")
		var b tokenBucket
		var taken []int64
		now := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, window/3).Draw(t, "pause")
			b.refill(now, capacity, window)
			for b.has() && rapid.Bool().Draw(t, "take") {
				b.take()
				taken = append(taken, now)
			}
		}
		for i := range taken {
			for j := i; j < len(taken); j++ {
				span := taken[j] - taken[i]
				most := capacity + span*capacity/window + 1
				if int64(j-i+1) > most {
					t.Fatalf("%d tokens in %d ns of a window of %d and capacity %d", j-i+1, span, window, capacity)
				}
			}
		}
	})
}

// The moment named by readyAt is the first at which a token is there.
func TestReadyAtIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Int64Range(Second, Minute).Draw(t, "window")
		capacity := rapid.Int64Range(1, 50).Draw(t, "capacity")
		var b tokenBucket
		b.refill(0, capacity, window)
		for b.has() {
			b.take()
		}
		b.refill(rapid.Int64Range(0, window/capacity/2).Draw(t, "later"), capacity, window)
		if b.has() {
			return
		}
		early, late := b, b
		at := b.readyAt(window)
		early.refill(at-1, capacity, window)
		late.refill(at, capacity, window)
		if !late.has() {
			t.Fatalf("no token at %d: %+v", at, late)
		}
		if early.has() {
			t.Fatalf("a token before %d: %+v", at, early)
		}
	})
}

func TestReclaimCapacity(t *testing.T) {
	for _, c := range []struct {
		configured int
		want       int64
	}{{0, 1}, {5, 1}, {20, 1}, {39, 1}, {40, 2}, {1000, 50}} {
		if got := reclaimCapacity(c.configured, 50); got != c.want {
			t.Errorf("%d machines: %d, want %d", c.configured, got, c.want)
		}
	}
}

// SHARD-14.9: pauses double to their ceiling and are spread by at most 20%.
func TestBackoffRamp(t *testing.T) {
	var b backoff
	for i, want := range []int64{1, 2, 4, 8, 16, 32, 60, 60} {
		b.fail(rampNotTouched, 100, "m1/create")
		d := b.Until - 100
		if lo, hi := want*Second*8/10, want*Second*12/10; d < lo || d > hi {
			t.Errorf("failure %d: pause %d ms", i+1, d/Millisecond)
		}
	}
	if jitter(10*Second, 20, "a", 1) == jitter(10*Second, 20, "b", 1) {
		t.Error("two subjects got the same pause")
	}
}
