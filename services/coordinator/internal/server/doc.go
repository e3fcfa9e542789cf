// Package server answers the RPCs of a coordinator: Coordinator and CoordinatorAdmin (COORD sections 6.2, 7.1 and 16).
//
// It stands between the wire and the packages that decide: package replica for what the group agrees on, package shards
// for the conversation with shards. What it owns is the way of a call: the leader check before everything else, identity,
// arguments, the rate limit, the audit record beside each mutation, pages, error codes, and the streams of WatchFleet and
// SnapshotSave. It also sets the gauges and writes the audit file, on every replica.
//
// It must never answer a read that the group has not confirmed, never acknowledge a mutation that is not committed, and
// never let a watcher slow anything down. Start at New, then gate.go for the way of a call and mutate.go for that of a
// mutation.
package server
