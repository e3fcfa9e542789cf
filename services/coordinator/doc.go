// Package coordinator is one replica of BigFleet's coordinator, which keeps what all shards agree on and what seldom changes, in one Raft group.
//
// Run is a whole replica in one call: several may run in one process. It opens its data directory, finds or begins its
// group, serves Coordinator and CoordinatorAdmin on one port, and returns when its context ends, after leadership was
// handed over. Nothing here dials a shard, a provider or a cluster, and nothing waits for this package: with every
// replica dead, shards continue deciding (COORD-1.3).
//
// Start at Run; then internal/server for the way of a call, internal/shards for the conversation with shards,
// internal/fleet for the replicated state and internal/replica for the group. Package archive keeps the state as a file.
package coordinator
