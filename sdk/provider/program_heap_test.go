package provider

import "testing"

// PROV-25.1, ADR 0206: what is alive decides how much garbage may gather: a fleet of 100,000 fills the room, one of 500,000 trebles,
// as every heap may, and a small one stays small.
func TestHeapRoom(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, growthMax}, {10 * mib, growthMax}, {80 * mib, 540}, {128 * mib, 300}, {200 * mib, growthMin}, {heapRoom, growthMin}, {10 * heapRoom, growthMin},
	} {
		got := growth(c.live)
		if got != c.want {
			t.Errorf("%d MiB alive: GOGC %d, want %d", c.live/mib, got, c.want)
		}
		if most := c.live + c.live*uint64(got)/100; most > max(heapRoom, 3*c.live) {
			t.Errorf("%d MiB alive: the heap may have %d MiB", c.live/mib, most/mib)
		}
	}
}
