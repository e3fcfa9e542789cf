// Package audit is the decision log: one append-only record that serves history, explanation and replay.
//
// A log is a directory of segments named by epoch and number. Each begins with a checkpoint of the core and then holds
// blocks of two kinds: events, in the reduced form that is enough to run the core again, and decision records, which
// people read. So history is read without touching events, and replay can begin at any segment (SHARD-28).
//
// Writing is off the core's loop, through a bounded queue. When the queue is full or the disk fails, a gap is marked, an
// error is counted, and a new segment with a checkpoint begins as soon as writing works again; decisions are never
// slowed or stopped. No secret is in a log: no blob, key or token ever reaches the core.
//
// Start at Log, then segment.go for the bytes, replay.go for running a log again. Tests cite SHARD-28.
package audit
