package shard

import (
	"maps"
	"slices"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/store"
)

// A large roll-up may end the process in a way that no deferred call sees: the kernel kills it for its memory. So its content
// is marked on the disk before the core sees it, and the mark is taken away when a plan with it has ended. Content that was
// marked when two processes in a row ended is refused like content that made the core panic (SHARD-3.8).

// bucketSuspect holds the marks in shard.db, by content hash.
const bucketSuspect = "suspect"

const (
	suspectRows  = 500       // a roll-up with fewer rows and bytes cannot use up a process's memory
	suspectBytes = 128 << 10 // on the wire
	suspectEnds  = 2         // processes that ended while the mark stood; one may have been killed by chance
	poisonTime   = 24 * time.Hour
)

type suspectNote struct {
	Processes int64 `n:"1"` // that have planned it and not ended the plan; never 0, which would be no bytes and so no mark
}

// suspects is the marks of this process; loop's goroutine only.
type suspects map[string]bool

// suspect is called before the core sees an event.
func (s *shell) suspect(e core.Event) {
	r, ok := e.(core.RollupArrived)
	if !ok || r.Hash == "" || r.Reject != nil || s.suspects[r.Hash] || r.RowCount < suspectRows && r.Bytes < suspectBytes || s.planned[r.Cluster] == r.Hash {
		return
	}
	if err := s.store.Put(bucketSuspect, r.Hash, codec.Marshal(suspectNote{Processes: s.ends[r.Hash] + 1})); err != nil {
		s.log.Warn("a large roll-up could not be marked before it is planned", "cluster", r.Cluster, "err", err)
		return
	}
	s.suspects[r.Hash] = true
	s.planned[r.Cluster] = r.Hash
}

// cleared is called when a plan has ended: what it took in did no harm.
func (s *shell) cleared() {
	for hash := range s.suspects {
		s.store.Hint(bucketSuspect, hash, nil)
		delete(s.ends, hash)
	}
	clear(s.suspects)
}

// suspected counts the end of the process before against what was marked then, and bans what was marked too often. It
// returns how often the process ended for each content that is not banned.
func suspected(db *store.Store) (ends map[string]int64, err error) {
	marks := db.Load(bucketSuspect)
	ends = map[string]int64{}
	for _, hash := range slices.Sorted(maps.Keys(marks)) {
		var n suspectNote
		if codec.Unmarshal(marks[hash], &n) != nil {
			n = suspectNote{Processes: 1}
		}
		if n.Processes < suspectEnds {
			ends[hash] = n.Processes
			continue
		}
		if err = db.Put(core.BucketPoison, hash, codec.Marshal(poisonNote{Until: time.Now().Add(poisonTime).Unix()})); err == nil {
			err = db.Put(bucketSuspect, hash, nil)
		}
		if err != nil {
			return nil, err
		}
	}
	return ends, nil
}
