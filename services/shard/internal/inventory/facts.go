package inventory

// What the shard remembers of a machine beside the word of its provider. Each setter reports whether anything changed.

// SetSince stores when the machine entered its present state, on the shard's clock: idle_since of an Idle machine,
// configured_at of a Configured one. The table does not set it by itself.
func (t *Table) SetSince(i Index, at int64) bool {
	r := t.rows.at(i)
	if r.Since == at {
		return false
	}
	t.leave(i)
	r.Since = at
	t.enter(i)
	return true
}

// SetReadiness stores what node reports say. A new binding begins with NoReport.
func (t *Table) SetReadiness(i Index, ready Readiness) bool {
	r := t.rows.at(i)
	if r.Readiness() == ready {
		return false
	}
	r.flags = r.flags&^readyBits | flags(ready)<<readyShift
	t.touch(i)
	return true
}

// SetOccupancy stores what class of things the machine's node holds. A new binding begins with OccupancyUnknown.
func (t *Table) SetOccupancy(i Index, o Occupancy) bool {
	r := t.rows.at(i)
	if r.held == o {
		return false
	}
	r.held = o
	t.touch(i)
	return true
}

// Occupancy returns the class of what the machine's node holds.
func (t *Table) Occupancy(i Index) Occupancy { return t.rows.at(i).held }

// SetOutOfService makes the engine see a Configured machine as Failed, because its node takes no Pods, or takes that back.
func (t *Table) SetOutOfService(i Index, out bool) bool {
	r := t.rows.at(i)
	if r.out == out {
		return false
	}
	t.leave(i)
	r.out = out
	t.enter(i)
	return true
}

// SetForeign marks a machine as owned by another shard (ENG-5.10), or takes the mark away. A new machine is ours.
func (t *Table) SetForeign(i Index, foreign bool) bool { return t.setFlag(i, isForeign, foreign) }

// SetStuck makes the engine see the machine as Failed, whatever its state (SHARD-14.14), or takes that back.
func (t *Table) SetStuck(i Index, stuck bool) bool { return t.setFlag(i, isStuck, stuck) }

// SetStalled makes the engine see the machine as Failed while its provider does not answer (SHARD-14.15), or takes that back.
func (t *Table) SetStalled(i Index, stalled bool) bool { return t.setFlag(i, isStalled, stalled) }

// Stalled reports whether the machine is marked stalled.
func (t *Table) Stalled(i Index) bool { return t.rows.at(i).flags&isStalled != 0 }

// SetLeaving makes the engine see a Configured machine as Draining, because its drain will come whatever the next plan
// says (SHARD-17.4), or takes that back.
func (t *Table) SetLeaving(i Index, leaving bool) bool { return t.setFlag(i, isLeaving, leaving) }

// SetAnnounced makes the engine see a host as one that goes, because its provider said that it takes it back.
func (t *Table) SetAnnounced(i Index, announced bool) bool {
	return t.setFlag(i, isAnnounced, announced)
}

// Announced reports whether the provider said that it takes the host back.
func (t *Table) Announced(i Index) bool { return t.rows.at(i).flags&isAnnounced != 0 }

func (t *Table) setFlag(i Index, f flags, on bool) bool {
	r := t.rows.at(i)
	if r.flags&f != 0 == on {
		return false
	}
	t.leave(i)
	r.flags ^= f
	t.enter(i)
	return true
}
