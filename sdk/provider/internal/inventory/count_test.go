package inventory

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"pgregory.net/rapid"
)

// PROV-21.1: what is kept as the number of machines by state is what counting them gives, after any history and after a restart.
func TestCountIsKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &clock{at: time.Unix(1000, 0)}
		s := keep(store.Memory())
		r := open(t, s, c)
		defer func() { _ = r.Close() }()
		for range rapid.IntRange(1, 30).Draw(rt, "changes") {
			id := fmt.Sprint(rapid.IntRange(0, 5).Draw(rt, "machine"))
			switch known := r.Get(id) != nil && r.Get(id).Record != nil; {
			case known && rapid.IntRange(0, 3).Draw(rt, "drop") == 0:
				r.drop(t, id)
			case rapid.IntRange(0, 9).Draw(rt, "restart") == 0:
				if err := r.Close(); err != nil {
					rt.Fatal(err)
				}
				r = open(t, s, c)
			default:
				record := lifecycle.NewSlot(id, lifecycle.Origin{}, shape(t, 1), c.now())
				record.State = rapid.SampledFrom([]lifecycle.State{lifecycle.Speculative, lifecycle.Idle, lifecycle.Failed}).Draw(rt, "state")
				record.Lost = rapid.Bool().Draw(rt, "a change inside")
				r.put(t, record, nil)
			}
			want := Count{}
			for row := range r.All() {
				want.add(row, 1)
			}
			if got := r.Count(); !maps.Equal(got, want) {
				rt.Fatalf("%v, want %v", got, want)
			}
		}
	})
}
