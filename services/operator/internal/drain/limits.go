package drain

import "time"

const (
	graceDefault       = 30 * time.Second // an instruction that names no grace
	cordonParallel     = 16
	cordonTimeout      = 3 * time.Second // one patch
	replyWithin        = 4 * time.Second // a preempting shard waits 5 s for the answer
	evictPerNode       = 10
	evictPerCluster    = 64
	evictTimeout       = 10 * time.Second
	blockedRetry       = 2 * time.Second // when the API server names no pause
	errorRetryMin      = time.Second
	errorRetryMax      = 10 * time.Second
	confirmEvery       = time.Second // live look at a node that seems empty
	checkEvery         = time.Second // when nothing else happens
	reportEvery        = 30 * time.Second
	reportSpacing      = time.Second      // between reports of changes, so that what blocks a drain shows at once
	abandonedAfter     = 60 * time.Second // Configured for this long after the deadline, and not asked again (OP-8.15)
	settleAfterResync  = 5 * time.Second  // for instructions that follow a replay
	orphanAfterDefault = 2 * time.Minute  // for a cloud controller to delete the Node of a machine that is gone
	namesMax           = 20               // of budgets and Pods in a report
	instructionsMax    = 10_000           // remembered; the oldest are forgotten, and a repeat joins by its node
)
