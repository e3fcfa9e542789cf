package planner_test

import "testing"

// ENG-11.16: a Pod whose room others took gets more at once, and the tries are counted; one whose room stands empty lacks something else.
func TestRoomThatOthersTookIsFollowedByMore(t *testing.T) {
	for holds, want := range map[string]int64{"1": 2, "nothing": 1} {
		r := newRoom(`
			cluster red reports
			need red/large cpu=4 unit=cpu:4
			machine m1 configured=red for=large cpu=4 node=ready holds=1
			machine m2 speculative cpu=4
			machine m3 speculative cpu=4`)
		r.now = 1000
		r.report(map[string]int64{"large": 1})
		if got := r.plan(1000, "large"); got != 1 {
			t.Fatalf("room for %d Pods, want 1", got)
		}
		r.lines("machine m2 configured=red for=large node=ready holds=" + holds)
		r.plan(1005, "large")
		r.now = 1006
		r.report(map[string]int64{"large": 1})
		if got := r.plan(1006, "large"); got != want {
			t.Errorf("its node holds %s: room for %d Pods, want %d", holds, got, want)
		}
	}
}
