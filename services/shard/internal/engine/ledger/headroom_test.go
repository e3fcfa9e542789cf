package ledger

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// ENG-11.16: a row that had room waits stuck_after before it gets more. It does not wait if fewer of its Pods are reported than when room
// last grew: that helped, and others took a part of it.
func TestRoomAgain(t *testing.T) {
	var row demand.RowKey
	p := &engine.Policy{StuckAfter: 120 * engine.Second}
	for name, c := range map[string]struct {
		reported, before, since, asked int64
		want                           bool
	}{
		"as many as before":            {3, 3, 10, 8, false},
		"more than before":             {4, 3, 10, 8, false},
		"as many, for long":            {3, 3, 120, 8, true},
		"others took a part":           {1, 3, 10, 8, true},
		"the row asks for more":        {3, 3, 10, 9, true},
		"none was reported before":     {1, 0, 10, 8, false},
		"others took a part, at once":  {2, 3, 0, 8, true},
		"fewer are asked, as many are": {3, 3, 10, 4, false},
	} {
		e := &sharingEntry{reported: map[demand.RowKey]int64{row: c.reported}, headroom: headroom{
			rows:  map[demand.RowKey]rowHeadroom{row: {pods: 3, units: 3, asked: 8, times: 1}},
			stuck: map[demand.RowKey]int64{row: c.before},
		}}
		if got := e.due(row, c.asked, c.since*engine.Second, p); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// ENG-11.17: a row that asks for less than when its room grew keeps no more units beyond that than it had then; if it grows again, it has what it lacks now.
func TestRoomOfARowThatShrinks(t *testing.T) {
	x := rowHeadroom{pods: 5, total: 215, asked: 200, base: 200}
	for asked, want := range map[int64]int64{200: 15, 208: 7, 230: 5, 20: 15} {
		if got := x.of(asked).units; got != want {
			t.Errorf("asks for %d: %d units of room, want %d", asked, got, want)
		}
	}
	x.own = 190 // shares hold the others
	for asked, want := range map[int64]int64{200: 190, 230: 190, 150: 140, 20: 10, 5: 1} {
		if got := x.of(asked).keep; got != want {
			t.Errorf("asks for %d: its own machines shall hold %d units, want %d", asked, got, want)
		}
	}
	x.pods, x.total, x.base = 8, 43, 20
	if got := x.of(20).units; got != 23 {
		t.Errorf("grown at 20: %d units of room, want 23", got)
	}
}
