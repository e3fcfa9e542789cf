package sources

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// key names a row for as long as it is there.
func key(shard string, n *pb.NeedView) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(n.GetNeed().GetGroup() + "\x00" + n.GetNeed().GetRowId()))
	return shard + "/" + n.GetClusterId() + "/" + n.GetProfileFingerprint() + "/" + strconv.FormatUint(h.Sum64(), 36)
}

// precedes is the order of precedence: priority, arrival, and then what makes it total.
func precedes(a, b *pb.FleetNeed) int {
	return cmp.Or(cmp.Compare(b.GetNeed().GetNeed().GetPriority(), a.GetNeed().GetNeed().GetPriority()),
		cmp.Compare(a.GetNeed().GetArrivalUnixNanos(), b.GetNeed().GetArrivalUnixNanos()), cmp.Compare(a.GetKey(), b.GetKey()))
}

// Watch says that somebody looks at needs, until release is called.
func (s *Set) Watch() (release func()) {
	s.watching.Add(1)
	return func() { s.watching.Add(-1) }
}

// Merged are the rows of several shards in one order.
func Merged(of []*Needs) []*pb.FleetNeed {
	if len(of) == 1 {
		return of[0].Rows
	}
	var out []*pb.FleetNeed
	for _, n := range of {
		out = append(out, n.Rows...)
	}
	slices.SortFunc(out, precedes)
	return out
}
