package demand

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// allocationKey is what mostly decides where a Need is in allocation order, side by side in memory: a comparison of Needs reads the Form of each.
type allocationKey struct {
	rank, arrival uint64 // ascending
	size          Size
	at            int32
}

func allocationKeyOf(n *Need, at int) allocationKey {
	p := &n.Form.Profile
	k := allocationKey{size: n.Size, at: int32(at), arrival: uint64(n.Arrival) ^ 1<<63}
	if n.Arrival == 0 {
		k.arrival = math.MaxUint64
	}
	k.rank = uint64(^(uint32(p.Priority)^1<<31))<<16 | uint64(^p.Interruption)<<8 | uint64(^p.Reclamation)
	return k
}

// sortNeeds brings the Needs of one cluster into allocation order: by rank, arrival, size, fingerprint and group (ENG-7.2).
func sortNeeds(needs []Need) {
	keys := make([]allocationKey, len(needs))
	for i := range needs {
		keys[i] = allocationKeyOf(&needs[i], i)
	}
	slices.SortFunc(keys, func(a, b allocationKey) int {
		if c := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.arrival, b.arrival), CompareSize(a.size, b.size)); c != 0 {
			return c
		}
		x, y := &needs[a.at], &needs[b.at]
		return cmp.Or(strings.Compare(x.Form.Fingerprint, y.Form.Fingerprint), strings.Compare(x.Group, y.Group))
	})
	if slices.IsSortedFunc(keys, func(a, b allocationKey) int { return cmp.Compare(a.at, b.at) }) {
		return
	}
	sorted := make([]Need, len(needs))
	for i, k := range keys {
		sorted[i] = needs[k.at]
	}
	copy(needs, sorted)
}
