package shard

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
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

// suspects are the marks of this process. The workers of roll-ups set them, because that waits for the disk; the loop takes
// them away.
type suspects struct {
	store *store.Store
	log   *slog.Logger

	mu    sync.Mutex
	marks map[string]mark   // by content hash
	last  map[string]string // the last content of each cluster that was marked
	ends  map[string]int64  // processes that ended with the content marked
}

// mark is what is known of marked content.
type mark struct {
	seen bool // by the core
	at   time.Time
}

// unseenMax is for how long a mark stands whose roll-up never reached the core: its session ended on the way.
const unseenMax = time.Minute

func newSuspects(db *store.Store, log *slog.Logger) (*suspects, error) {
	ends, err := suspected(db)
	return &suspects{store: db, log: log, marks: map[string]mark{}, last: map[string]string{}, ends: ends}, err
}

// mark is called with each roll-up before the core gets it.
func (s *suspects) mark(r *core.RollupArrived) {
	if r.Hash == "" || r.Reject != nil || r.RowCount < suspectRows && r.Bytes < suspectBytes {
		return
	}
	s.mu.Lock()
	_, stands := s.marks[r.Hash]
	known, ends := stands || s.last[r.Cluster] == r.Hash, s.ends[r.Hash]
	if !known {
		s.marks[r.Hash], s.last[r.Cluster] = mark{at: time.Now()}, r.Hash
	}
	s.mu.Unlock()
	if known {
		return
	}
	if err := s.store.Put(bucketSuspect, r.Hash, codec.Marshal(suspectNote{Processes: ends + 1})); err != nil {
		s.log.Warn("a large roll-up could not be marked as suspect before it is planned", "cluster", r.Cluster, "err", err)
	}
}

// seen notes that the core has been given a roll-up.
func (s *suspects) seen(hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, stands := s.marks[hash]; stands {
		m.seen = true
		s.marks[hash] = m
	}
}

// cleared is called when a plan has ended: what it took in did no harm. waits tells what the plan did not have yet.
func (s *suspects) cleared(waits func(hash string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, m := range s.marks {
		if m.seen && !waits(hash) || !m.seen && time.Since(m.at) > unseenMax {
			s.store.Hint(bucketSuspect, hash, nil)
			delete(s.ends, hash)
			delete(s.marks, hash)
		}
	}
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
