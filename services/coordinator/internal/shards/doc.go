// Package shards is the leader's conversation with shards: reports in, instructions out (COORD sections 7 to 10, 12, 15.4).
//
// A Desk belongs to one reign. It keeps what shards said to this leader (soft state: reports, acks, retry timers) and
// derives what each has to be told from the replicated state and those acks alone, so that the next leader arrives at
// the same instructions under the same ids (COORD-3.6, 8.1). Every consequence of a report or an ack is a committed
// operation; a report that brings nothing new writes nothing (COORD-1.6).
//
// The Desk never dials anybody, never decides about a workload, and never makes one shard's report wait for another's
// commit. It is dropped whole with its reign (COORD-6.2.4). Start at Desk.Report, then orders.go and acks.go; Desk.Run is
// what happens without a report.
package shards
