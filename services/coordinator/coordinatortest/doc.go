// Package coordinatortest holds what tests of the coordinator need on the other side of the wire.
//
// Shard follows the shard's side of COORD sections 7 to 10 and 12 by the letter: it persists before it obeys, keeps a
// done set, reserves, adopts and lets go, and can crash or lose its disk between any two steps. Inventory is the provider
// that several shards share; it knows who would act on each machine, so that a test can check that no two ever share one.
//
// A Shard reports through any function, so the same model runs against a ShardRegistry in memory and, as a real client, against
// processes on a network. It is for tests only and must never be linked into a program.
package coordinatortest
