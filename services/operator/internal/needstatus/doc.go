// Package needstatus shows users why demand is or is not met: in the conditions of a CapacityRequest and in events of its Pod.
//
// A StatusReporter knows the shard's status of each row, the result of the last roll-up, and whether a session exists. It
// copies them to the requests of a row as condition Fulfilled, with a reason from a closed list and the shard's own text. It
// keeps condition Valid in step with aggregation. It writes little: only after a reason changed and stayed the same for a
// while, unmet rows first, within a rate for the process and for each row. The request of a Pod whose row was never unmet
// gets no condition.
//
// It decides nothing, and nothing reads it. Start at StatusReporter.Status and Run. Tests cite the operator specification
// as OP-n.n.
package needstatus
