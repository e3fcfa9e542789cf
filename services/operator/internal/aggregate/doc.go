// Package aggregate turns many CapacityRequests into the few rows of a roll-up.
//
// Aggregate counts the requests of every distinct spec text (a variant). A row is the sum over the variants with the same
// constraints. A change of one request therefore costs two map look-ups, however many requests there are,
// and the rows never drift: Rebuild computes them again from the requests themselves and says whether they were equal.
//
// The package owns the canonical form of a row (equal constraints give equal bytes, whatever the order in which they
// were written), the synthesis of OPERATOR_SAME and of group names from co-location terms, and the rounding of dollars to
// penalty buckets; nothing else in BigFleet does any of the three. Every row passes the rules of the wire contract: what
// would break one is left out and reported as a Problem of its request, because one bad row makes a shard refuse all.
//
// It reads no clock and does no I/O. An Aggregate is not safe for concurrent use. Start at Aggregate.Set.
// Tests cite the operator specification as OP-n.n.
package aggregate
