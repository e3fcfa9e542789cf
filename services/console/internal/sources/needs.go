package sources

import (
	"hash/fnv"
	"strconv"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// key names a row for as long as it is there.
func key(shard string, n *pb.NeedView) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(n.GetNeed().GetGroup() + "\x00" + n.GetNeed().GetRowId()))
	return shard + "/" + n.GetClusterId() + "/" + n.GetProfileFingerprint() + "/" + strconv.FormatUint(h.Sum64(), 36)
}

// Watch says that somebody looks at needs, until release is called.
func (s *Set) Watch() (release func()) {
	s.watching.Add(1)
	return func() { s.watching.Add(-1) }
}
