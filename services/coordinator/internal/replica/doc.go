// Package replica is one member of the Raft group: it feeds the log to package fleet, proposes, leads, reads and joins
// (COORD sections 4 to 6 and 13).
//
// A Node is opened on a data directory and runs until Close. Every replica has the newest State, without a lock; only
// the leader of an open Leadership may answer for the group. A Leadership lasts from the moment it opened (after a
// Barrier and a higher fencing term, COORD-6.1.2) to the moment it is lost; whatever belongs to it hangs on its context
// and is dropped with it (COORD-6.2.4).
//
// The package knows nothing of shards, instructions or RPC handlers. It must never acknowledge what the group did not
// commit, never apply an entry it does not understand (COORD-4.4), and never start empty by accident (package store).
//
// Start at Open, then Node.Propose, Node.Confirm and Node.Leadership. bootstrap.go and join.go form the group.
package replica
