// Package fleet is the coordinator's replicated state: the tables, the operations that change them and the rules that
// always hold (COORD sections 3, 4 and 9 to 13).
//
// A State is immutable. Apply takes a state and one log entry and returns the next state: no clock, no randomness, no
// map order and no I/O, so every replica that applies the same log holds the same bytes (COORD-4.2). Times and ids come
// from the proposer inside the entry. Because a state never changes, a reader needs no lock, a snapshot is a pointer
// (COORD-5.5), and a dry run of an admin call is Apply with the result thrown away (COORD-16.2).
//
// The package derives what follows from the tables alone: the view of a shard (View), the state hash (Hash) and the
// snapshot stream (WriteSnapshot, ReadSnapshot). It knows nothing of Raft, of reports, acks or sessions; who may
// propose what, and when, is decided by packages orders, rebalance and server.
//
// Rows are generated messages of package coordinatorlog. They are shared between states: code that changes a row clones
// it first. Start at State, then Apply.
package fleet
