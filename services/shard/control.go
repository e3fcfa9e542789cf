package shard

import (
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/store"
)

// loader reads buckets of shard.db.
type loader struct {
	db      *store.Store
	now     core.At
	unknown func(bucket, key string, err error)
}

// read decodes a value. A value that does not decode is skipped and logged: the file is intact, so a newer build wrote it.
func (l *loader) read(bucket, key string, raw []byte, into any) bool {
	err := codec.Unmarshal(raw, into)
	if err != nil {
		l.unknown(bucket, key, err)
	}
	return err == nil
}

// load reads all values of a bucket, in key order.
func load[T any](l *loader, bucket string) []T {
	m := l.db.Load(bucket)
	var out []T
	for _, k := range slices.Sorted(maps.Keys(m)) {
		var v T
		if l.read(bucket, k, m[k], &v) {
			out = append(out, v)
		}
	}
	return out
}

func (l *loader) names(bucket string) []string { return slices.Sorted(maps.Keys(l.db.Load(bucket))) }

// pauses reads the pauses that have not expired; their remaining time runs on Mono from now on.
func (l *loader) pauses() []core.Pause {
	var out []core.Pause
	for _, p := range load[core.Pause](l, core.BucketPauses) {
		if p.Expires > 0 {
			if p.TTL = p.Expires - l.now.Wall; p.TTL <= 0 {
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// Keys of the control bucket.
const (
	keyDryRun  = "dry-run"
	keyLineage = "lineage"
	keyView    = "view"
	keyDone    = "done"
	keyDomains = "domains"
)

// control reads the single values.
func (l *loader) control(c *core.Control) {
	m := l.db.Load(core.BucketControl)
	_, c.DryRun = m[keyDryRun]
	read := func(key string, into any) bool {
		raw, ok := m[key]
		return ok && l.read(core.BucketControl, key, raw, into)
	}
	read(keyLineage, &c.Coordinator)
	var view core.View
	if read(keyView, &view) {
		c.View = &view
	}
	var done core.DoneSet
	if read(keyDone, &done) {
		c.Done = done.Acks
	}
	c.Removed = string(m[core.KeyRemoved])
	var domains core.DomainSet
	if read(keyDomains, &domains) {
		c.Domains = domains.Domains
	}
}

// poisoned reads the banned contents that are still banned.
func (l *loader) poisoned() []core.Poison {
	m := l.db.Load(core.BucketPoison)
	var out []core.Poison
	for _, hash := range slices.Sorted(maps.Keys(m)) {
		var n poisonNote
		if !l.read(core.BucketPoison, hash, m[hash], &n) {
			continue
		}
		if left := n.Until*core.Second - l.now.Wall; left > 0 {
			out = append(out, core.Poison{Hash: hash, Until: l.now.Mono + left})
		}
	}
	return out
}
