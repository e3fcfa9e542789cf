package match

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// ENG-13.9: the room under a few values may change, and as many units run as when all values are looked at.
func TestRanksServeAsRoomsDo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for range 20_000 {
		var rooms Rooms
		rooms.Reset(1+r.Int32N(3), r.Int32N(5), nil)
		for v := range r.IntN(12) {
			rooms.Add(symbol.ID(v), r.Int64N(6))
		}
		if len(rooms.Units) > 1 && r.IntN(20) == 0 {
			rooms.Units[0], rooms.Units[1] = math.MaxInt64-1, 5
		}
		var k Ranks
		k.Of(&rooms)
		var changes []Change
		for range r.IntN(3) {
			c := Change{At: r.IntN(len(rooms.Units)+2) - 1, Units: r.Int64N(4)}
			switch {
			case c.At < 0 || c.At >= len(rooms.Units):
				c.At, c.New = -1, r.IntN(2) == 0
			case r.IntN(2) == 0:
				c.Units = -min(c.Units, rooms.Units[c.At]/2)
			}
			changes = append(changes, c)
		}
		if got, want := k.Served(&rooms, changes...), reference(rooms, changes); got != want {
			t.Fatalf("%v with %v: %d run, want %d", rooms, changes, got, want)
		}
	}
}

// reference makes other rooms.
func reference(r Rooms, changes []Change) int64 {
	var x Rooms
	x.Copy(&r)
	for _, c := range changes {
		if c.At >= 0 {
			x.Units[c.At] = c.from(x.Units[c.At])
		} else if c.New {
			x.Values, x.Units = append(x.Values, 0), append(x.Units, c.Units)
		}
	}
	return x.Served()
}
