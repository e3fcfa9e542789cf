package ledger

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"slices"
)

// Join is the ledger behind the join counters of a cluster (ENG-17.4, 17.6). The core reports events to it and copies
// the counters into demand.Facts before a plan. The zero value is an empty ledger.
type Join struct {
	clusters map[string]*joinEntry
}

type joinEntry struct {
	drained  []int64 // when a drain for this cause began, oldest first
	failures int32
}

// JoinEntry is the ledger of one cluster.
type JoinEntry struct {
	Cluster  string  `n:"1"`
	Drained  []int64 `n:"2"` // nanoseconds of the shard's clock, oldest first
	Failures int32   `n:"3"`
}

// Drained records that the drain of a machine that had not joined has begun.
func (j *Join) Drained(cluster string, now int64) {
	if j.clusters == nil {
		j.clusters = map[string]*joinEntry{}
	}
	e := j.clusters[cluster]
	if e == nil {
		e = &joinEntry{}
		j.clusters[cluster] = e
	}
	e.drained = append(e.drained, now)
	e.failures++
}

// Ready records that some Node of the cluster has become Ready for the first time since its binding: joining works.
func (j *Join) Ready(cluster string) {
	if e := j.clusters[cluster]; e != nil {
		e.failures = 0
	}
}

// Counters returns JoinDrained and JoinFailures of demand.Facts.
func (j *Join) Counters(cluster string, now int64, p *engine.Policy) (drained, failures int32) {
	e := j.clusters[cluster]
	if e == nil {
		return 0, 0
	}
	e.drained = slices.DeleteFunc(e.drained, func(at int64) bool { return now-at >= p.JoinTimeout })
	if len(e.drained) == 0 && e.failures == 0 {
		delete(j.clusters, cluster)
		return 0, 0
	}
	return int32(len(e.drained)), e.failures
}

// NextChange returns when Counters changes by itself: the time at which the oldest drain is forgotten, or 0.
func (j *Join) NextChange(cluster string, p *engine.Policy) int64 {
	if e := j.clusters[cluster]; e != nil && len(e.drained) > 0 {
		return e.drained[0] + p.JoinTimeout
	}
	return 0
}

// Entries lists the ledger by cluster.
func (j *Join) Entries() []JoinEntry {
	out := make([]JoinEntry, 0, len(j.clusters))
	for _, c := range sortedKeys(j.clusters) {
		e := j.clusters[c]
		out = append(out, JoinEntry{Cluster: c, Drained: slices.Clone(e.drained), Failures: e.failures})
	}
	return out
}

// Restore replaces the ledger.
func (j *Join) Restore(entries []JoinEntry) {
	j.clusters = make(map[string]*joinEntry, len(entries))
	for _, e := range entries {
		j.clusters[e.Cluster] = &joinEntry{drained: slices.Clone(e.Drained), failures: e.Failures}
	}
}
