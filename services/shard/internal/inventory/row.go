package inventory

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"

// Row is the part of a machine that plans touch: half a cache line, without pointers. Readers get a pointer into the
// table, valid until the next write.
type Row struct {
	Class       uint32    // in Table.Class
	Cluster     symbol.ID // as the provider says it or the shard moved it, in Space.Clusters
	Attribution uint32    // in Table.AttributionRow; 0 is none
	Order       uint32    // compares as the id does; changes when machines come
	Since       int64
	pos         uint32 // in its cluster's members
	flags       flags
	held        Occupancy
	out         bool // its node takes no Pods
}

type flags uint16

const (
	stateBits   flags = 15
	isForeign   flags = 1 << 4
	isStuck     flags = 1 << 5
	isPromised  flags = 1 << 6
	markedAll   flags = 1 << 7  // withheld for every cluster
	markedSome  flags = 1 << 8  // withheld for single clusters
	markedStays flags = 1 << 9  // a mark forbids its release
	isLive      flags = 1 << 10 // the row names a machine
	readyShift        = 11
	readyBits   flags = 3 << readyShift
	isLeaving   flags = 1 << 13 // Configured, and its drain cannot be taken back
	isAnnounced flags = 1 << 14 // its provider takes the host back
	isStalled   flags = 1 << 15 // on its way at a provider that does not answer
)

// State is the state as the provider says it or as the shard moved it.
func (r *Row) State() State { return State(r.flags & stateBits) }

// Seen is the state as the engine sees it: Failed if the machine is stuck, stalled or out of service, Draining if nothing can stop its drain. A host that its
// provider takes back is not supply either: Draining while it serves, Deleting while it does not.
func (r *Row) Seen() State {
	s := State(r.flags & stateBits)
	switch {
	case r.flags&(isStuck|isStalled) != 0 || r.out && s == Configured:
		return Failed
	case r.flags&(isLeaving|isAnnounced) != 0 && s == Configured:
		return Draining
	case r.flags&isAnnounced != 0 && s == Idle:
		return Deleting
	}
	return s
}

// Foreign reports whether another shard owns the machine.
func (r *Row) Foreign() bool { return r.flags&isForeign != 0 }

// Promised reports whether the machine has a promise.
func (r *Row) Promised() bool { return r.flags&isPromised != 0 }

// Occupancy is the class of what the machine's node holds.
func (r *Row) Occupancy() Occupancy { return r.held }

// Readiness is what node reports say.
func (r *Row) Readiness() Readiness { return Readiness(r.flags & readyBits >> readyShift) }

// Marked reports whether the machine has a mark for single clusters, and whether it has one for all.
func (r *Row) Marked() (some, all bool) { return r.flags&markedSome != 0, r.flags&markedAll != 0 }

// Bound reports whether the machine is bound and creditable as such.
func (r *Row) Bound() bool { return r.Seen().Bound() }

// InFlight reports whether the machine is in flight for the cluster of its promise (ENG-1).
func (r *Row) InFlight() bool {
	if r.flags&(isPromised|isForeign) != isPromised {
		return false
	}
	s := r.Seen()
	return s == Creating || s == Idle || s == Draining
}

// Pool is one of the two kinds of free machines.
type Pool uint8

const (
	IdlePool        Pool = 0
	SpeculativePool Pool = 1
	pools                = 2
)

// pool returns the free pool that the machine is in, withheld for single clusters or not.
func (r *Row) pool() (Pool, bool) {
	if r.flags&(isForeign|isPromised|markedAll) != 0 {
		return 0, false
	}
	return r.stock()
}

// stock returns the pool that an owned machine would be in without promise and mark.
func (r *Row) stock() (Pool, bool) {
	switch r.Seen() {
	case Idle:
		return IdlePool, r.flags&isForeign == 0
	case Speculative:
		return SpeculativePool, r.flags&isForeign == 0
	}
	return 0, false
}

// sound reports whether the machine is ours and has not failed.
func (r *Row) sound() bool { return r.flags&isForeign == 0 && r.Seen() != Failed }

// releasable reports whether the machine is deleted when its hold is over and no need claims it.
func (r *Row) releasable() bool {
	return r.flags&(isForeign|isPromised|markedStays) == 0 && r.Seen() == Idle
}
