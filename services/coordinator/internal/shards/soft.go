package shards

import (
	"strings"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/rebalance"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// shard is what one shard said to this leader.
type shard struct {
	id string

	mu       sync.Mutex
	heard    bool // at least one report
	epoch    int64
	cycle    int64
	received time.Time
	gap      time.Duration // between its last two reports
	restart  time.Time     // when its epoch changed under this leader

	summary       *v1.ShardSummary
	shortfalls    []rebalance.Shortfall
	supply        []rebalance.Bucket
	links         map[string]*v1.ClusterLink
	linksComplete bool
	liveSince     map[string]time.Time // cluster -> since when this shard has its live session
	version       string
	view, moves   bool // capabilities

	reported *pb.Version // view in force, by its own word
	acked    *pb.Version // newest view it acked to this leader

	addressAt time.Time
	pending   map[string]*pendingInstruction // by subject
	asserted  map[string]bool                // assign subjects an older shard acked
	released  map[string]bool                // unassign subjects an older shard acked
	missing   map[string]int                 // by open move: reports in a row without its shortfall
	sequence  int64
}

func newShard(id string) *shard {
	return &shard{id: id, links: map[string]*v1.ClusterLink{}, liveSince: map[string]time.Time{}, pending: map[string]*pendingInstruction{},
		asserted: map[string]bool{}, released: map[string]bool{}, missing: map[string]int{}}
}

// fresh reports whether the last report is not stale.
func (s *shard) fresh(now time.Time) bool {
	interval := max(ReportInterval, min(s.gap, intervalMax))
	return s.heard && now.Sub(s.received) <= staleAfter*interval
}

// newer compares a report with the last one, epoch first (COORD-7.4).
func (s *shard) newer(r *v1.ShardReport) bool {
	if !s.heard || r.GetShardEpoch() != s.epoch {
		return !s.heard || r.GetShardEpoch() > s.epoch
	}
	return r.GetCycle() > s.cycle
}

// store replaces the soft state by a newer report. It returns how many entries were left out, by kind.
func (s *shard) store(r *v1.ShardReport, interner *rebalance.Interner, now time.Time) (shortfalls, buckets int) {
	if s.heard {
		s.gap = now.Sub(s.received)
	}
	if s.heard && r.GetShardEpoch() != s.epoch {
		// Another process: it knows nothing of what was asserted, and obeys what it persisted.
		s.restart, s.links, s.linksComplete = now, map[string]*v1.ClusterLink{}, false
		clear(s.asserted)
		clear(s.liveSince)
	}
	s.heard, s.epoch, s.cycle, s.received = true, r.GetShardEpoch(), r.GetCycle(), now
	s.version = r.GetShardVersion()
	s.view, s.moves = false, false
	for _, token := range r.GetCapabilities() {
		switch name, n, versioned := strings.Cut(token, "/"); {
		case versioned && n != "1":
		case name == capView:
			s.view = true
		case name == capMoves:
			s.moves = true
		}
	}
	if r.GetSummary() != nil {
		s.summary = r.GetSummary()
	}
	s.reported = fleet.StoredVersion(r.GetViewVersion())
	s.shortfalls, shortfalls = interner.Shortfalls(r.GetShortfalls(), s.shortfalls, shortfallsMax)
	if r.GetSupplyComplete() {
		s.supply, buckets = interner.Supply(r.GetSupply(), bucketsMax)
	}
	s.storeLinks(r, now)
	return shortfalls, buckets
}

// storeLinks keeps the clusters. A complete list replaces what was known; a partial one adds to it.
func (s *shard) storeLinks(r *v1.ShardReport, now time.Time) {
	if r.GetClustersComplete() {
		s.links, s.linksComplete = map[string]*v1.ClusterLink{}, true
	}
	for _, link := range r.GetClusters() {
		if fleet.ValidCluster(link.GetClusterId()) {
			s.links[link.GetClusterId()] = link
		}
	}
	for id := range s.liveSince {
		if !s.links[id].GetLiveSession() {
			delete(s.liveSince, id)
		}
	}
	for id, link := range s.links {
		if _, known := s.liveSince[id]; link.GetLiveSession() && !known {
			s.liveSince[id] = now
		}
	}
}

func (s *shard) quarantined() bool {
	for _, link := range s.links {
		if link.GetQuarantined() {
			return true
		}
	}
	return false
}

// pendingInstruction is one instruction without a terminal ack, as far as this leader knows.
type pendingInstruction struct {
	subject  string
	kind     string
	sequence int64
	since    time.Time
	attempt  int32
	sent     bool
	next     time.Time // not sent before
	stuck    bool
	last     *v1.InstructAck
	payload  *v1.CoordinatorInstruction
}
