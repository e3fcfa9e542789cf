package fleet

import (
	"cmp"
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"
)

// A domain changes hands release-before-acquire (COORD-9.5). While a handover runs, the row names the next owner and
// the shards that must ack a view without the domain; no shard owns it. The leader proposes FinishDomainMove when they
// did, and names the handover it means, so that an answer to an older one finishes nothing.

func checkDomain(key, value string) *Refusal {
	if !validLabelKey(key) || !validLabelValue(value) {
		return invalid("domain %s=%s does not have the syntax of Kubernetes labels", key, value)
	}
	return nil
}

func (a *applier) assignDomain(op *pb.AssignDomain) *Refusal {
	if r := checkDomain(op.GetKey(), op.GetValue()); r != nil {
		return r
	}
	sh, r := a.liveShard(op.GetShardId())
	if r != nil {
		return r
	}
	id := sh.GetShardId()
	if row := a.s.Domain(op.GetKey(), op.GetValue()); row != nil {
		switch {
		case row.GetUnassign() && row.GetOwner() == id:
			return a.moveDomain(&pb.MoveDomain{Key: op.GetKey(), Value: op.GetValue(), To: id})
		case !row.GetUnassign() && (row.GetNext() == id || row.GetNext() == "" && row.GetOwner() == id):
			return nil
		}
		owner := row.GetOwner()
		if owner == "" {
			owner = row.GetNext()
		}
		return otherOwner("domain", op.GetKey()+"="+op.GetValue(), owner, "move it instead")
	}
	a.partitionBy(sh.GetProvider(), op.GetKey())
	row := &pb.Domain{Key: op.GetKey(), Value: op.GetValue(), SinceUnixNanos: a.at}
	a.handOver(row, "", id)
	return nil
}

// moveDomain redirects a domain. Moving it to its owner takes a handover back.
func (a *applier) moveDomain(op *pb.MoveDomain) *Refusal {
	old := a.s.Domain(op.GetKey(), op.GetValue())
	if old == nil {
		return unknown("domain", op.GetKey()+"="+op.GetValue())
	}
	sh, r := a.liveShard(op.GetTo())
	if r != nil {
		return r
	}
	to := sh.GetShardId()
	if !old.GetUnassign() && (old.GetNext() == to || old.GetNext() == "" && old.GetOwner() == to) {
		return nil
	}
	a.partitionBy(sh.GetProvider(), op.GetKey())
	a.handOver(proto.CloneOf(old), old.GetOwner(), to)
	return nil
}

// handOver starts or redirects the way of a domain from owner ("" is the default owner of to's provider) to a shard.
func (a *applier) handOver(row *pb.Domain, owner, to string) {
	a.touchDomain(row)
	row.SinceUnixNanos, row.Unassign, row.Claimed = a.at, false, nil
	before := row.GetReleasers()
	row.Owner, row.Next, row.Releasers, row.Handover = owner, "", nil, nil
	for _, id := range a.mustRelease(row.GetKey(), owner, to) {
		at := slices.IndexFunc(before, func(r *pb.Releaser) bool { return r.GetShardId() == id })
		if at >= 0 {
			row.Releasers = append(row.Releasers, before[at]) // it has been without the domain since then
		} else {
			row.Releasers = append(row.Releasers, &pb.Releaser{ShardId: id, View: a.version})
		}
	}
	if len(row.GetReleasers()) == 0 {
		row.Owner = to
	} else {
		row.Next, row.Handover = to, a.version
	}
	a.putDomain(row)
	a.touchDomain(row)
}

// mustRelease names the shards that may act on the machines of a domain and would not when it belongs to another: the
// explicit owner, and, when no shard of the next owner's provider owned it, every shard there that a later rule of
// COORD-9.3 made the owner.
func (a *applier) mustRelease(key, owner, to string) []string {
	var out []string
	if owner == to {
		return nil
	}
	if owner != "" {
		out = append(out, owner)
	}
	provider := a.s.shards.get(to).GetProvider()
	if owner == "" || a.s.shards.get(owner).GetProvider() != provider {
		for _, id := range a.s.laterOwners(provider, key) {
			if id != to && id != owner {
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// laterOwners are the shards of a provider whose ownership gives way to a domain of a key: those with domains of keys
// behind it in the order of partition, and the default owner.
func (s *State) laterOwners(provider, key string) []string {
	row := s.providers.get(provider)
	if row == nil {
		return nil
	}
	var out []string
	if row.GetDefaultOwner() != "" {
		out = append(out, row.GetDefaultOwner())
	}
	keys := row.GetPartitionKeys()
	if at := slices.Index(keys, key); at >= 0 && at < len(keys)-1 {
		for id := range s.ShardsOf(provider) {
			if slices.ContainsFunc(keys[at+1:], func(later string) bool { return s.hasDomains(id, later) }) {
				out = append(out, id)
			}
		}
	}
	return out
}

// hasDomains reports whether a shard owns, or is about to own, a domain of a key.
func (s *State) hasDomains(shard, key string) bool {
	for range s.domainsByShard.under(shard + sep + key + sep) {
		return true
	}
	return false
}

// touchDomain touches every shard whose view mentions a domain: both owners, and those to whom it is foreign.
func (a *applier) touchDomain(d *pb.Domain) {
	for _, id := range []string{d.GetOwner(), d.GetNext()} {
		if id != "" {
			a.touch(id)
			a.touch(a.s.laterOwners(a.s.shards.get(id).GetProvider(), d.GetKey())...)
		}
	}
}

// partitionBy makes a label key one of the provider's partition keys. A key that no domain uses yet changes no owner.
func (a *applier) partitionBy(provider, key string) {
	row := a.s.providers.get(provider)
	if row == nil || slices.Contains(row.GetPartitionKeys(), key) {
		return
	}
	row = proto.CloneOf(row)
	row.PartitionKeys = append(row.PartitionKeys, key)
	a.putProvider(row)
	a.touchProvider(provider)
}

func (a *applier) finishDomainMove(op *pb.FinishDomainMove) *Refusal {
	old := a.s.Domain(op.GetKey(), op.GetValue())
	if old == nil {
		if op.GetForce() {
			return unknown("domain", op.GetKey()+"="+op.GetValue())
		}
		return nil
	}
	if !InHandover(old) || !op.GetForce() && !SameView(old.GetHandover(), op.GetHandover()) {
		return nil
	}
	a.settleDomain(old)
	return nil
}

// settleDomain ends a handover.
func (a *applier) settleDomain(old *pb.Domain) {
	a.touchDomain(old)
	if old.GetUnassign() {
		a.dropDomain(old)
		return
	}
	row := proto.CloneOf(old)
	row.Owner, row.Next, row.Releasers, row.Handover, row.SinceUnixNanos = old.GetNext(), "", nil, nil, a.at
	a.putDomain(row)
	a.touchDomain(row)
}

func (a *applier) unassignDomain(op *pb.UnassignDomain) *Refusal {
	old := a.s.Domain(op.GetKey(), op.GetValue())
	if old == nil || old.GetUnassign() {
		return nil
	}
	owner := old.GetOwner()
	heirs := a.s.laterOwners(a.s.shards.get(owner).GetProvider(), op.GetKey())
	a.touchDomain(old)
	if owner == "" || !slices.ContainsFunc(heirs, func(id string) bool { return id != owner }) {
		// No shard acquires anything that another still holds: a first assignment that had not ended is taken back,
		// or the owner keeps the machines by a later rule.
		a.dropDomain(old)
		return nil
	}
	row := proto.CloneOf(old)
	row.SinceUnixNanos, row.Unassign, row.Next, row.Handover = a.at, true, "", a.version
	at := slices.IndexFunc(old.GetReleasers(), func(r *pb.Releaser) bool { return r.GetShardId() == owner })
	if at >= 0 {
		row.Releasers = []*pb.Releaser{old.GetReleasers()[at]}
	} else {
		row.Releasers = []*pb.Releaser{{ShardId: owner, View: a.version}}
	}
	a.putDomain(row)
	a.touchDomain(row)
	return nil
}

// abandonDomains takes every domain from a shard that is removed.
func (a *applier) abandonDomains(id string) {
	for _, d := range slices.Collect(a.s.DomainsOf(id)) {
		a.touchDomain(d)
		row := proto.CloneOf(d)
		row.SinceUnixNanos = a.at
		switch {
		case d.GetOwner() == id && (d.GetNext() == "" || d.GetUnassign()):
			a.dropDomain(d)
			continue
		case d.GetOwner() == id:
			row.Owner = ""
		case d.GetOwner() == "":
			a.dropDomain(d) // a first assignment to the removed shard
			continue
		default:
			row.Next, row.Releasers, row.Handover = "", nil, nil // a handover to the removed shard
		}
		a.putDomain(row)
		a.touchDomain(row)
	}
}

// InHandover reports whether a domain waits for a shard to let go.
func InHandover(d *pb.Domain) bool { return d.GetNext() != "" || d.GetUnassign() }

// dropReleaser lets handovers continue without a shard that is gone.
func (a *applier) dropReleaser(id string) {
	for _, d := range slices.Collect(a.s.HandoversOf(id)) {
		row := proto.CloneOf(d)
		row.Releasers = slices.DeleteFunc(row.Releasers, func(r *pb.Releaser) bool { return r.GetShardId() == id })
		a.putDomain(row)
		if len(row.GetReleasers()) == 0 {
			a.settleDomain(row)
		}
	}
}

// letGo ends the handovers that wait for a shard which went to another provider: it no longer sees what it hands over.
func (a *applier) letGo(id string) {
	for _, d := range slices.Collect(a.s.HandoversOf(id)) {
		row := proto.CloneOf(d)
		if row.Owner == id {
			row.Owner = ""
		}
		row.Releasers = slices.DeleteFunc(row.Releasers, func(r *pb.Releaser) bool { return r.GetShardId() == id })
		a.touchDomain(d)
		switch {
		case d.GetUnassign():
			a.dropDomain(d)
		case len(row.Releasers) == 0:
			a.settleDomain(row)
		default:
			a.putDomain(row)
		}
	}
}

// claimAgain makes a shard that came to another provider wait for those who own the machines of its domains there.
func (a *applier) claimAgain(id, provider string) {
	for _, d := range slices.Collect(a.s.DomainsOf(id)) {
		a.partitionBy(provider, d.GetKey())
		row := proto.CloneOf(d)
		// Those who had to let go at the old provider need not any more; only an explicit owner still has to.
		row.Releasers = slices.DeleteFunc(row.Releasers, func(r *pb.Releaser) bool { return r.GetShardId() != d.GetOwner() })
		for _, other := range a.s.laterOwners(provider, d.GetKey()) {
			if other != id && !slices.ContainsFunc(row.Releasers, func(r *pb.Releaser) bool { return r.GetShardId() == other }) {
				row.Releasers = append(row.Releasers, &pb.Releaser{ShardId: other, View: a.version})
			}
		}
		if len(row.Releasers) == 0 {
			if row.Next == id {
				a.settleDomain(row)
			}
			continue
		}
		slices.SortFunc(row.Releasers, func(x, y *pb.Releaser) int { return cmp.Compare(x.GetShardId(), y.GetShardId()) })
		if row.Owner == id {
			row.Owner, row.Next = "", id
		}
		row.Handover = a.version
		a.putDomain(row)
		a.touchDomain(row)
	}
}
