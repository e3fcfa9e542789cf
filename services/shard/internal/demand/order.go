package demand

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// turnKey is what mostly decides the turn of a Need, side by side in memory: a comparison of Needs reads the Form of each.
type turnKey struct {
	rank, arrival uint64 // ascending
	size          Size
	at            int32
}

func turnKeyOf(n *Need, at int) turnKey {
	p := &n.Form.Profile
	k := turnKey{size: n.Size, at: int32(at), arrival: uint64(n.Arrival) ^ 1<<63}
	if n.Arrival == 0 {
		k.arrival = math.MaxUint64
	}
	k.rank = uint64(^(uint32(p.Priority)^1<<31))<<16 | uint64(^p.Interruption)<<8 | uint64(^p.Reclamation)
	return k
}

// sortNeeds brings the Needs of one cluster into turn order: by rank, arrival, size, fingerprint and group (ENG-7.2).
func sortNeeds(needs []Need) {
	keys := make([]turnKey, len(needs))
	for i := range needs {
		keys[i] = turnKeyOf(&needs[i], i)
	}
	slices.SortFunc(keys, func(a, b turnKey) int {
		if c := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.arrival, b.arrival), CompareSize(a.size, b.size)); c != 0 {
			return c
		}
		x, y := &needs[a.at], &needs[b.at]
		return cmp.Or(strings.Compare(x.Form.Fingerprint, y.Form.Fingerprint), strings.Compare(x.Group, y.Group))
	})
	sorted := make([]Need, len(needs))
	for i, k := range keys {
		sorted[i] = needs[k.at]
	}
	copy(needs, sorted)
}
