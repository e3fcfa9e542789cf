package shards

import (
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// COORD-21.34, 21.47, 12.9: a move that another leader finished carries the time of that leader's clock, which may be an
// hour off. Its cooldown is measured from the moment this leader saw it, whatever that time says.
func TestAgesDoNotGoByClocksOfOtherMachines(t *testing.T) {
	now := time.Now()
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		a := moveAges{}
		m := &pb.Move{MoveId: "m", UpdatedAtUnixNanos: now.Add(off).UnixNano()}
		if age := a.of(m, now); age != 0 {
			t.Errorf("clock %s off: seen for %s at first sight", off, age)
		}
		if age := a.of(m, now.Add(time.Minute)); age != time.Minute {
			t.Errorf("clock %s off: seen for %s after a minute", off, age)
		}
		m.UpdatedAtUnixNanos++ // the next state
		if age := a.of(m, now.Add(2*time.Minute)); age != 0 {
			t.Errorf("clock %s off: the next state is %s old at first sight", off, age)
		}
	}
}
