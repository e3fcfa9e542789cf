// Package rebalance decides which machines should move between shards (COORD section 12.1 and 12.2).
//
// Sweep looks at what shards reported, short and idle alike, and proposes moves: idle machines first, then speculative
// slots with their quota, then machines that the donor has to drain. Every proposal says why, and names each donor that
// was looked at and the reason it was passed over (COORD-12.21).
//
// The package is pure: equal input gives equal proposals in equal order, whatever the order of maps. Time arrives as
// ages and as one instant. It owns no state, sends nothing and commits nothing; carrying a move out is the move
// protocol of package shards. It never pushes: without a shortfall there is no move.
//
// Start at Sweep, then Interner, which holds reports in a form small enough for thousands of shards.
package rebalance
