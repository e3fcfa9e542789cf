package upcoming

import "time"

const (
	concurrencyDefault = 32 // more contends on client caches and makes the tail worse (OP-4.13)
	conflictRetries    = 5  // within one handling (OP-12.8)
	retryMin           = 50 * time.Millisecond
	retryMax           = 10 * time.Second
	passingMin         = 500 * time.Millisecond // how long a phase that ends by itself waits for the next, and Ready for its Node, once the object exists (OP-4.14)
	passingWrites      = 20                     // the same as a number of writes at the speed of the API server
	passingMax         = 10 * time.Second
	slow               = 50 * time.Millisecond // of an API server that has more to do than it can
	settle             = 3 * time.Second       // how long a change of the Node alone waits for a change of the phase
	failedKept         = time.Hour             // Failed objects of machines that are gone
	removedKept        = 10 * time.Minute      // that the cache may be late
	failedKeptUnheard  = 24 * time.Hour        // the same when the shard never ended a replay (OP-12.10)
	sweepEvery         = time.Minute
	joinTimeoutDefault = 10 * time.Minute // Configured without a Ready Node (OP-11.3)
)
