package shards

import "time"

// Constants of COORD-2 that belong to the conversation with shards.
const (
	// ReportInterval is the default of shards; three of them make a report stale.
	ReportInterval = 10 * time.Second
	intervalMax    = 60 * time.Second // slower shards are stale after three of these
	staleAfter     = 3

	batchWindow = 50 * time.Millisecond
	// While many shards register at once the window is wider, so that 4,000 of them in 10 s are some 50 entries (COORD-19).
	batchWindowBusy = 200 * time.Millisecond
	batchBusy       = 8       // reports in one entry
	batchMax        = 256     // operations in one entry (COORD-4.8)
	batchBytesMax   = 4 << 20 // of several reports in one entry; one report may have more, up to replica.ProposalBytesMax

	instructionsMax = 64 // in one answer, plus one view
	retryMin        = 10 * time.Second
	retryMax        = 5 * time.Minute
	attemptsMax     = 10
	// ackedSoon is the suggested delay after a new instruction, so that the steps of a move do not take an interval each.
	ackedSoon = 300 * time.Millisecond
	// movingFor is how long after its last step both sides of a move report that often.
	movingFor = staleAfter * ReportInterval

	shortfallsMax = 100
	bucketsMax    = 256
	violationsMax = 64
	storesMax     = 64
	termJumpMax   = 1_000_000_000
	addressEvery  = time.Minute

	rebindAfter    = time.Minute
	unseenAfter    = 10 * time.Minute
	staleCluster   = 30 * 24 * time.Hour
	mergeWaitMax   = 10 * time.Minute
	epochStable    = 2 * time.Minute
	moveKept       = time.Hour
	proposalsKept  = 1000
	levelSupported = 10 * time.Minute
	autoAssignRate = 10 // domains a minute (COORD-9.8)
	goneReports    = 2  // fresh reports without the shortfall before its move is taken back (COORD-12.18)
)

// Capabilities of a shard (WIRE-2.8).
const (
	capView  = "view"
	capMoves = "moves"
)
