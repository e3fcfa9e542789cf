// Package inventory holds the machines of a shard: what providers say about them, and what the shard remembers about
// them for its own decisions (ENG-5).
//
// It owns the machine table, its indexes and its counts. It judges nothing: gates stand before it, and whether a fact is
// adopted is for the core to say (SHARD-13, SHARD-14). It reads no clock: Advance takes the time.
//
// # Writers
//
// The core is the only writer, between plans. Put stores the provider's word about one machine; the Set methods store
// the shard's own: attribution, promise, withheld marks, readiness, ownership. No method of the table does two of these at
// once: a caller that moves a machine to Idle also clears its attribution. Each writer compares first, so that storing what is already
// there costs nothing downstream, and advances the versions that Planner watches only for real changes.
//
// At the start of each cycle, before the plan, the core calls Advance with the time of the plan. It drops what has
// expired, promises and marks, so that a plan never has to ask whether one still counts, and makes the numbers of
// removed machines available again.
//
// # Numbers
//
// An Index is a dense number that stays with a machine until Remove, so the core can keep its own columns by it. After
// Remove the number is not given away before the next Advance: a decision of the last plan can be checked against the
// table without meeting a stranger. Indexes decide nothing; order is always by id.
//
// Start at Table; Machine is what goes in.
package inventory
