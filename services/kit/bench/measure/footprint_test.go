package measure

import "testing"

// The parts of a struct are named by its fields, hidden ones too, and what two of them share is counted once.
func TestFootprint(t *testing.T) {
	type piece struct{ numbers []uint32 }
	shared := make([]uint64, 10, 16)
	v := &struct {
		rows   []piece
		shared []uint64
		again  []uint64
		name   string
		other  []byte
		none   map[string]int
		by     map[uint32]uint32
	}{rows: []piece{{make([]uint32, 3, 8)}, {}}, shared: shared, again: shared[:2], name: "four", other: make([]byte, 99), by: map[uint32]uint32{1: 2}}
	want := map[string]float64{"rows": 2*24 + 8*4, "shared": 16 * 8, "again": 0, "name": 4, "none": 0}
	got := map[string]float64{}
	for _, p := range Footprint(v, "other") {
		got[p.Name] = p.Bytes
	}
	for name, bytes := range want {
		if got[name] != bytes {
			t.Errorf("%s holds %v bytes, want %v", name, got[name], bytes)
		}
	}
	if _, counted := got["other"]; counted || got["by"] < 9 || got["by"] > 32 {
		t.Errorf("%v", got)
	}
}
