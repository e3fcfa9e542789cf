package shards

import (
	"sync"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// auditQuota bounds the audit records that reports of shards cause. The audit ring holds the calls of people, and a shard that reports
// without end must not push them out of it (COORD-16.10). What is above the bound is in the log of the process only.
type auditQuota struct {
	mu      sync.Mutex
	began   time.Time // of the present hour
	all     int
	byShard map[string]int
}

const (
	auditsOfShard = 100   // an hour
	auditsOfAll   = 1_000 // an hour
)

// take reports whether one more record on behalf of a shard fits.
func (q *auditQuota) take(shard string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Sub(q.began) >= time.Hour {
		q.began, q.all, q.byShard = now, 0, map[string]int{}
	}
	if q.all >= auditsOfAll || q.byShard[shard] >= auditsOfShard {
		return false
	}
	q.all++
	q.byShard[shard]++
	return true
}

// audited is the operation that records what a shard reported, or nothing if the quota is used up.
func (d *ShardRegistry) audited(shard, method, reason string) []*pb.Operation {
	if !d.quota.take(shard, time.Now()) {
		return nil
	}
	return []*pb.Operation{{Kind: &pb.Operation_AppendAudit{AppendAudit: &pb.AppendAudit{Method: method, RequestJson: "{}", Reason: reason}}}}
}
