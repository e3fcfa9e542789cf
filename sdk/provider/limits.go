package provider

import (
	"time"
)

// The constants of PROV-30. Unlimited is not a value: each bound has a metric that shows how near it is.
const (
	RequestBytesMax      = 32 << 20  // of Configure: a blob and metadata at their own limits must reach the handler; rpc_requests_total{code}
	SmallRequestBytesMax = 4 << 20   // of all other calls; the same
	ResponseBytesMax     = 256 << 20 // about 700,000 machines in one List; a larger one is paged
	MetadataBytesMax     = 4 << 20   // keys plus values of one shard_metadata
	BlobBytesMax         = 16 << 20  // one bootstrap_blob
	blobsBytesMax        = 256 << 20 // of all transitions that run or wait: a quarter of the charts' memory
	bindingsBytesMax     = 256 << 20 // clusters and metadata of all machines, in memory twice: 500 bytes for each of 500,000 machines
	MachineIDBytesMax    = 4096      // a longer id is NOT_FOUND and gets no mark
	ShardIDBytesMax      = 1024      // a longer one is INVALID_ARGUMENT
	UnknownMarksMax      = 100_000   // about 20 MB; marks{machine="unknown"}
	ClaimsMax            = 10_000    // shards whose claimed epoch is kept, never dropped: about 10 MB with the longest ids
	TombstonesMax        = 1_000_000 // about 100 MB; tombstones
	CommitBatchMax       = 1024      // changes in one transaction; store_commit_batch
	TransitionsMax       = 10_000    // running at once, 8 KB of stack each; transitions_in_flight
	QueueMax             = 100_000   // waiting; transition_queue
	CallsMax             = 64        // substrate calls in parallel per call name; substrate_wait_seconds
	seedCountMax         = 9_999_999 // slots of one offering, and of a seeded catalogue
	historyMax           = 20        // transitions kept per machine for ExplainMachine
)

// Times of PROV-30.
const (
	UnknownMarkTTL  = 24 * time.Hour
	SilentShardTTL  = 30 * 24 * time.Hour
	TombstoneTTL    = 24 * time.Hour
	GraceMax        = time.Hour
	DescribeTimeout = 2 * time.Minute
	ShutdownGrace   = 25 * time.Second
	reconcileMax    = 24 * time.Hour // an unknown host costs money until the next round
	retryBase       = 250 * time.Millisecond
	retryMax        = 15 * time.Second
	startHold       = 5 * time.Second // how long a call waits for the first round of a start
	sweepInterval   = time.Minute
	admitWarn       = 10 * time.Millisecond
	callLogEvery    = 10 * time.Second // between two lines about errors of one call name
	breakerQuiet    = 30 * time.Second
	breakerProbe    = 15 * time.Second
	breakerFailures = 10
	stockoutMax     = time.Hour
)

// Timeouts are the limits of the transitions (PROV-11.1). The clock of a transition starts when its work begins; waiting
// in the queue has its own limit of twice that.
type Timeouts struct {
	Create, Configure, Delete time.Duration // 0 means 5 min
	// DrainExtra is added to the grace of a Drain. 0 means 5 min.
	DrainExtra time.Duration
}

const defaultTimeout = 5 * time.Minute

func (t Timeouts) withDefaults() Timeouts {
	for _, d := range []*time.Duration{&t.Create, &t.Configure, &t.Delete, &t.DrainExtra} {
		if *d <= 0 {
			*d = defaultTimeout
		}
	}
	return t
}

// limit is the time limit of one transition.
func (t Timeouts) limit(k Kind, grace time.Duration) time.Duration {
	switch k {
	case Create:
		return t.Create
	case Configure:
		return t.Configure
	case Delete:
		return t.Delete
	}
	return grace + t.DrainExtra
}

// Retention says how the janitor ages things (PROV-18).
type Retention struct {
	Failed   time.Duration // 0 means 10 min
	Lost     time.Duration // 0 means 5 min
	Stockout time.Duration // 0 means 5 min; doubled per repeat, up to an hour
	Orphan   time.Duration // 0 means 2 min
}

func (r Retention) withDefaults() Retention {
	for _, d := range []struct {
		p *time.Duration
		v time.Duration
	}{{&r.Failed, 10 * time.Minute}, {&r.Lost, 5 * time.Minute}, {&r.Stockout, 5 * time.Minute}, {&r.Orphan, 2 * time.Minute}} {
		if *d.p <= 0 {
			*d.p = d.v
		}
	}
	return r
}
