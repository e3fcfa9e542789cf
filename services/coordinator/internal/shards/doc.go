// Package shards is the leader's conversation with shards: reports in, instructions out (COORD sections 7 to 10, 12, 15.4).
//
// A ShardRegistry belongs to one leadership. It keeps what shards said to this leader (soft state: reports, acks, retry timers) and
// derives the instructions of each from the replicated state and those acks alone, so that the next leader arrives at
// the same instructions under the same ids (COORD-3.6, 8.1). Every consequence of a report or an ack is a committed
// operation; a report that brings nothing new writes nothing (COORD-1.6).
//
// The ShardRegistry never dials, never decides about a workload, and never makes one shard's report wait for another's
// commit. It is dropped whole with its leadership (COORD-6.2.4). Start at ShardRegistry.Report, then instructions.go and acks.go; ShardRegistry.Run is
// what happens without a report.
package shards
