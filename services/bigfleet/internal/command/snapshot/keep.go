package snapshot

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/archive"
)

// saved is an archive that lies beside the one just written.
type saved struct {
	path string
	made time.Time
}

// keepNewest deletes the oldest archives of a group beside path until keep are left, path among them, and returns how many
// there are and how many went. A file that is not an archive, or one of another group, is not touched: it is somebody else's.
func keepNewest(path string, keep int, of archive.Meta) (kept, deleted int, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return 0, 0, err
	}
	var others []saved
	for _, e := range entries {
		at := filepath.Join(filepath.Dir(path), e.Name())
		if !e.Type().IsRegular() || e.Name() == filepath.Base(path) {
			continue
		}
		m, err := archive.ReadMeta(at)
		if err != nil || m.ClusterUUID != of.ClusterUUID && !slices.Contains(of.PreviousUUIDs, m.ClusterUUID) {
			continue
		}
		others = append(others, saved{at, m.CreatedAt})
	}
	slices.SortFunc(others, func(x, y saved) int { return cmp.Or(y.made.Compare(x.made), cmp.Compare(y.path, x.path)) })
	var errs []error
	for _, old := range others[min(keep-1, len(others)):] {
		if err := os.Remove(old.path); err != nil {
			errs = append(errs, err)
			continue
		}
		deleted++
	}
	return 1 + len(others) - deleted, deleted, errors.Join(errs...)
}
