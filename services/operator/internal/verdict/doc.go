// Package verdict tells users why, where they look: in the conditions of a CapacityRequest and the events of its Pod.
//
// A Teller knows what the shard says of each row, what became of the last roll-up, and whether there is a session. It
// fans that out to the requests of a row as condition Fulfilled with a reason from a closed list and the shard's own
// words, and keeps condition Valid true to what aggregation found. Writes are few by construction: only when the reason
// changed and held for a while, rows that are short first, a bounded number a second and per row; a request of a Pod
// whose row was never short gets no condition at all.
//
// It decides nothing and is read by nothing. Start at Teller.Status and Run. Tests cite the operator specification as
// OP-n.n.
package verdict
