package fleet

import (
	"cmp"
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"
)

// A slice has a target, what the admin wants, and a grant, what the shard may still be using. A grant falls when the
// shard acked a view with the lower target and rises only from what is free, so the sum of what shards may use never
// exceeds what the provider allows (COORD-11.5).

// Usable is what the view of a shard says.
func Usable(s *pb.Slice) int32 { return min(s.GetTarget(), s.GetGranted()) }

func (a *applier) setQuota(op *pb.SetQuota) *Refusal {
	want := op.GetQuota()
	if want.GetProvider() == "" || a.s.providers.get(want.GetProvider()) == nil {
		return unknown("provider", want.GetProvider())
	}
	old := a.s.Quota(want.GetProvider(), want.GetRegion())
	total := transitUnits(old)
	for shard, n := range sortedMap(want.GetSlices()) {
		if _, r := a.liveShard(shard); r != nil {
			return r
		}
		if n < 0 {
			return invalid("the slice of shard %q is negative", shard)
		}
		total += int64(n)
	}
	if want.GetDeclared() < 0 || total > int64(want.GetDeclared()) {
		return refused("over-declared", "lower a slice or raise the declared total",
			"the slices and the units in transfer add up to %d, more than the declared %d", total, want.GetDeclared())
	}
	row := &pb.Quota{Provider: want.GetProvider(), Region: want.GetRegion(), Declared: want.GetDeclared(), Transits: old.GetTransits()}
	for _, s := range old.GetSlices() {
		row.Slices = append(row.Slices, proto.CloneOf(s))
	}
	for _, s := range row.Slices {
		s.Target = want.GetSlices()[s.GetShardId()]
	}
	for shard, n := range sortedMap(want.GetSlices()) {
		if sliceOf(row, shard) == nil {
			row.Slices = append(row.Slices, &pb.Slice{ShardId: shard, Target: n})
			if old == nil {
				row.Slices[len(row.Slices)-1].Granted = n // nothing was limited before, so nothing is held back
			}
		}
	}
	slices.SortFunc(row.Slices, func(x, y *pb.Slice) int { return cmp.Compare(x.GetShardId(), y.GetShardId()) })
	a.settle(row, old)
	if old == nil {
		a.touchProvider(row.GetProvider())
	}
	return nil
}

// settle notes the version of lowered slices, gives away what is free, and stores the row.
func (a *applier) settle(row, old *pb.Quota) {
	free := int64(row.GetDeclared())
	for _, s := range row.Slices {
		free -= int64(s.GetGranted())
	}
	for _, s := range row.Slices {
		if s.GetTarget() > s.GetGranted() && free > 0 {
			n := min(int64(s.GetTarget()-s.GetGranted()), free)
			s.Granted += int32(n)
			free -= n
		}
	}
	for _, s := range row.Slices {
		before := sliceOf(old, s.GetShardId())
		if Usable(before) != Usable(s) || before == nil {
			a.touch(s.GetShardId())
		}
		switch {
		case s.GetGranted() <= s.GetTarget():
			s.LoweredIn = nil
		case before.GetTarget() != s.GetTarget() || s.GetLoweredIn() == nil:
			s.LoweredIn = a.version
		}
	}
	row.Slices = slices.DeleteFunc(row.Slices, func(s *pb.Slice) bool { return s.GetTarget() == 0 && s.GetGranted() == 0 })
	a.putQuota(row)
}

func (a *applier) deleteQuota(op *pb.DeleteQuota) *Refusal {
	old := a.s.Quota(op.GetProvider(), op.GetRegion())
	if old == nil {
		return nil
	}
	a.dropQuota(old)
	a.touchProvider(old.GetProvider())
	return nil
}

func (a *applier) shiftQuota(op *pb.ShiftQuota) *Refusal {
	old := a.s.Quota(op.GetProvider(), op.GetRegion())
	if old == nil {
		return unknown("quota", op.GetProvider()+" "+op.GetRegion())
	}
	if _, r := a.liveShard(op.GetTo()); r != nil {
		return r
	}
	if op.GetUnits() < 0 || sliceOf(old, op.GetFrom()).GetTarget() < op.GetUnits() {
		return refused("slice-too-small", "shift less", "shard %q has %d units, but %d are requested", op.GetFrom(), sliceOf(old, op.GetFrom()).GetTarget(), op.GetUnits())
	}
	row := proto.CloneOf(old)
	addTarget(row, op.GetFrom(), -op.GetUnits())
	addTarget(row, op.GetTo(), op.GetUnits())
	a.settle(row, old)
	return nil
}

func (a *applier) settleQuota(op *pb.SettleQuota) *Refusal {
	old := a.s.Quota(op.GetProvider(), op.GetRegion())
	s := sliceOf(old, op.GetShardId())
	if s.GetLoweredIn() == nil || NewerView(s.GetLoweredIn(), op.GetAcked()) {
		return nil
	}
	row := proto.CloneOf(old)
	sliceOf(row, op.GetShardId()).Granted = s.GetTarget()
	a.settle(row, old)
	return nil
}

// abandonQuotas takes the slices of a shard that is gone.
func (a *applier) abandonQuotas(id string) {
	for _, old := range a.s.quotas.all() {
		if sliceOf(old, id) == nil {
			continue
		}
		row := proto.CloneOf(old)
		row.Slices = slices.DeleteFunc(row.Slices, func(s *pb.Slice) bool { return s.GetShardId() == id })
		a.settle(row, old)
	}
}

// takeTransit takes units from a donor for a move (COORD-12.20). Without a row there is nothing to take.
func (a *applier) takeTransit(m *pb.Move, units int32) {
	old := a.s.Quota(m.GetProvider(), m.GetRegion())
	if old == nil || units <= 0 {
		return
	}
	row := proto.CloneOf(old)
	units = min(units, sliceOf(row, m.GetFrom()).GetTarget())
	addTarget(row, m.GetFrom(), -units)
	row.Transits = append(row.Transits, &pb.Transit{MoveId: m.GetMoveId(), Units: units})
	slices.SortFunc(row.Transits, func(x, y *pb.Transit) int { return cmp.Compare(x.GetMoveId(), y.GetMoveId()) })
	a.settle(row, old)
}

// endTransit gives the recipient as many of a move's units as it adopted machines, and the donor the rest.
func (a *applier) endTransit(m *pb.Move, adopted int32) {
	old := a.s.Quota(m.GetProvider(), m.GetRegion())
	at := slices.IndexFunc(old.GetTransits(), func(t *pb.Transit) bool { return t.GetMoveId() == m.GetMoveId() })
	if at < 0 {
		return
	}
	row := proto.CloneOf(old)
	units := row.Transits[at].GetUnits()
	row.Transits = slices.Delete(row.Transits, at, at+1)
	if !Live(a.s.shards.get(m.GetTo())) {
		adopted = 0
	}
	addTarget(row, m.GetTo(), min(adopted, units))
	if Live(a.s.shards.get(m.GetFrom())) {
		addTarget(row, m.GetFrom(), units-min(adopted, units))
	}
	a.settle(row, old)
}

func addTarget(row *pb.Quota, shard string, n int32) {
	if n == 0 {
		return
	}
	s := sliceOf(row, shard)
	if s == nil {
		s = &pb.Slice{ShardId: shard}
		row.Slices = append(row.Slices, s)
		slices.SortFunc(row.Slices, func(x, y *pb.Slice) int { return cmp.Compare(x.GetShardId(), y.GetShardId()) })
	}
	s.Target += n
}

func sliceOf(q *pb.Quota, shard string) *pb.Slice {
	for _, s := range q.GetSlices() {
		if s.GetShardId() == shard {
			return s
		}
	}
	return nil
}

func transitUnits(q *pb.Quota) int64 {
	var n int64
	for _, t := range q.GetTransits() {
		n += int64(t.GetUnits())
	}
	return n
}
