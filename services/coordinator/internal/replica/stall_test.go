package replica

import (
	"testing"
	"time"
)

// COORD-6.2.3: a process that stood still does not trust answers from before for a while; one that runs does, whatever the load
// within half a lease; and a clock that jumps is taken for a standstill.
func TestStallIsDetected(t *testing.T) {
	p := stallDetector{lease: 400 * time.Millisecond}
	now := time.Now()
	beat := func(after time.Duration) { now = now.Add(after); p.beat(now) }
	if p.doubtful(now) {
		t.Error("doubtful before it began")
	}
	for range 20 {
		beat(150 * time.Millisecond)
	}
	if p.doubtful(now.Add(199 * time.Millisecond)) {
		t.Error("a process that runs is doubted")
	}
	if !p.doubtful(now.Add(time.Second)) {
		t.Error("no beat for a second, and no doubt: the beat may come after the question")
	}
	beat(time.Second)
	for range 40 {
		beat(150 * time.Millisecond)
		if !p.doubtful(now) {
			t.Fatal("answers from before the standstill may still come in")
		}
	}
	for range 20 {
		beat(150 * time.Millisecond)
	}
	if p.doubtful(now) {
		t.Error("doubted for ever")
	}
	now = now.Round(0).Add(time.Hour) // as after a machine that slept: the wall clock alone moved
	if !p.doubtful(now) {
		t.Error("a sleep is not noticed")
	}
}
