// Package demand holds what the clusters of a shard ask for.
//
// It owns the meaning of a profile: its canonical form, its fingerprint and its penalty buckets (ENG-4), and the needs
// table: one list of Needs per cluster, replaced as a whole by each accepted roll-up, with the arrival time of each row
// key, the hold of each Need and the facts of each cluster that the engine reads (ENG-2.5).
//
// It never judges a roll-up: gates and guards stand before it. It counts no machines; it reads no clock: arrival times
// are given by the caller. It never guesses that silence means "no demand": rows leave by Replace and Remove alone.
//
// # Writers
//
// The core is the only writer, between plans. Replace takes rows in plain form (strings and quantities), so that roll-ups
// can be decoded off the core's goroutine; Seal does there what costs time. Every writer reports whether anything the
// engine reads has changed, and advances the version of that cluster only then. The engine reads Cluster values during a
// plan; the slice Needs of a Cluster is never changed in place, so a result may keep it.
//
// Start at Table; Profile and Row are what goes in, Need is what is kept.
package demand
