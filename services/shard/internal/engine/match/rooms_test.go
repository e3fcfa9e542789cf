package match_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// runs is ENG-13.9 word by word: how many units run with room under each value.
func runs(r *match.Rooms, room map[symbol.ID]int64) (sum int64) {
	low := int64(0)
	if len(room) > 0 && len(room) >= int(r.MinDomains) {
		low = 1 << 40
		for _, u := range room {
			low = min(low, u)
		}
	}
	for _, u := range room {
		sum += min(u, low+int64(r.Skew))
	}
	return sum
}

func roomOf(r *match.Rooms) map[symbol.ID]int64 {
	out := map[symbol.ID]int64{}
	for i, v := range r.Values {
		out[v] += r.Units[i]
	}
	return out
}

// with is the room with so many units more under a value.
func with(r *match.Rooms, v symbol.ID, units int64) map[symbol.ID]int64 {
	room := roomOf(r)
	room[v] += units
	return room
}

func randomRooms(rnd *rand.Rand) *match.Rooms {
	r := &match.Rooms{}
	r.Reset(1+rnd.Int32N(3), rnd.Int32N(5), nil)
	for v := range rnd.Uint32N(5) {
		r.Add(symbol.ID(v), rnd.Int64N(7))
	}
	return r
}

// What one value more gets is decided by counting, and not by trying every number.
func TestRoomsCountAsTheyAreDefined(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		r := randomRooms(rnd)
		before, values, units := runs(r, roomOf(r)), slices.Clone(r.Values), slices.Clone(r.Units)
		if got := r.Served(); got != before {
			t.Fatalf("%+v: %d run, not %d", r, got, before)
		}
		v, offered, needs := symbol.ID(rnd.Uint32N(6)), rnd.Int64N(9), 1+rnd.Int64N(9)
		if got, want := r.Helps(v, offered), runs(r, with(r, v, offered)) > before; got != want {
			t.Fatalf("%+v with %d under %d: it helps: %v", r, offered, v, got)
		}
		if !slices.Equal(r.Values, values) || !slices.Equal(r.Units, units) {
			t.Fatalf("a question changed the rooms: %+v", r)
		}
		want, most := int64(0), min(runs(r, with(r, v, offered))-before, needs)
		for most > 0 && runs(r, with(r, v, want))-before < most {
			want++
		}
		if got := r.Useful(r.Position(v), offered, needs, before); got != want {
			t.Fatalf("%+v: of %d under %d, needing %d, %d are of use, not %d", r, offered, v, needs, got, want)
		}
	}
}

// No value may hold more than Most says, and the one with the least room may always hold more.
func TestNoValueHoldsMoreThanMost(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 5_000 {
		r := randomRooms(rnd)
		for i, v := range r.Values {
			if got, want := runs(r, with(r, v, 1)) > runs(r, roomOf(r)), r.Units[i] < r.Most(); got != want {
				t.Fatalf("%+v: one more under %d runs: %v", r, v, got)
			}
		}
	}
}

func TestSparedUnitsAreNotNeeded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 5_000 {
		r := randomRooms(rnd)
		if len(r.Values) == 0 {
			continue
		}
		at, asked := rnd.IntN(len(r.Values)), rnd.Int64N(12)
		units := rnd.Int64N(r.Units[at] + 1)
		if got, want := r.Spares(at, units, asked), runs(r, with(r, r.Values[at], -units)) >= asked; got != want {
			t.Fatalf("%+v without %d at %d, asked %d: %v", r, units, at, asked, got)
		}
	}
}

// Level is the least room under each value that grows with which all that is asked for runs.
func TestLevelIsTheLeastThatIsEnough(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 5_000 {
		r := randomRooms(rnd)
		grows := make([]bool, len(r.Values))
		for i := range grows {
			grows[i] = rnd.IntN(2) == 0
		}
		raised := func(level int64) int64 {
			room := roomOf(r)
			for i, v := range r.Values {
				if grows[i] {
					room[v] = max(room[v], level)
				}
			}
			return runs(r, room)
		}
		asked := rnd.Int64N(15)
		level := r.Level(grows, asked)
		if got := r.Raised(grows, level); got != raised(level) {
			t.Fatalf("%+v raised to %d: %d run, not %d", r, level, got, raised(level))
		}
		for l := range level {
			if raised(l) >= asked {
				t.Fatalf("%+v, asked %d: %d is enough, and not only %d", r, asked, l, level)
			}
		}
		if raised(level) < asked && raised(level+20) > raised(level) {
			t.Fatalf("%+v, asked %d: more than %d is of use", r, asked, level)
		}
	}
}

// Layers takes as many units as there are, one level after the other.
func TestLayersAreEven(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for range 5_000 {
		r := randomRooms(rnd)
		room, units, total := slices.Clone(r.Units), rnd.Int64N(25), int64(0)
		r.Layers(units)
		for i, u := range r.Units {
			total += u
			if u > room[i] || u < 0 {
				t.Fatalf("%d of %d under one value", u, room[i])
			}
			for j, other := range r.Units {
				if u+1 < other && u < room[i] || u < other && u < room[i] && i < j {
					t.Fatalf("%d beside %d of %d: %v", u, other, room[i], r.Units)
				}
			}
		}
		if have := sum(room); total != min(units, have) {
			t.Fatalf("%d of %d units, room for %d", total, units, have)
		}
	}
}

func sum(list []int64) (n int64) {
	for _, x := range list {
		n += x
	}
	return n
}
