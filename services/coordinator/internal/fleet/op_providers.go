package fleet

import (
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// ZoneKey partitions the machines of a provider without a partition.
const ZoneKey = "topology.kubernetes.io/zone"

// providerFor returns the provider that a reported address belongs to and creates it when there is none (COORD-9.4).
// An empty address is a shard that reported no provider yet: it owns nothing by domain until it does.
func (a *applier) providerFor(address string) (string, *Refusal) {
	if address == "" {
		return "", nil
	}
	if name, ok := a.s.ProviderOf(address); ok {
		return name, nil
	}
	if !validProvider(address) {
		return "", invalid("provider address %q holds control characters or is longer than 4096 bytes", address)
	}
	row := a.s.providers.get(address)
	if row == nil {
		row = &pb.Provider{Name: address, PartitionKeys: []string{ZoneKey}}
	}
	row = proto.CloneOf(row)
	row.Addresses = append(row.Addresses, address)
	a.putProvider(row)
	return address, nil
}

// joinProvider makes a shard one of its provider's. The first one owns what no domain assigns.
func (a *applier) joinProvider(id, provider string) {
	if row := a.s.providers.get(provider); row != nil && row.GetDefaultOwner() == "" {
		row = proto.CloneOf(row)
		row.DefaultOwner = id
		a.putProvider(row)
	}
	a.touch(id)
	// Another shard of the provider cares when it is no longer the only one, or when domains came along. Thousands of shards
	// join at once after a restore, and each view is sent.
	if a.s.shardsOfCount(provider) <= 2 || a.s.ownsDomains(id) {
		a.touchProvider(provider)
	}
}

func (s *State) ownsDomains(id string) bool {
	for range s.DomainsOf(id) {
		return true
	}
	return false
}

// leaveProvider hands on what a shard owned by default. It runs after the shard's row changed.
func (a *applier) leaveProvider(id, provider string) {
	row := a.s.providers.get(provider)
	if row == nil {
		return
	}
	row = proto.CloneOf(row)
	if row.GetNextDefaultOwner() == id {
		row.NextDefaultOwner, row.Releasers, row.Handover = "", nil, nil
	}
	if row.GetDefaultOwner() == id {
		row.DefaultOwner, row.DefaultOwnerNamed = a.successor(row), row.GetNextDefaultOwner() != "" && row.GetDefaultOwnerNamed()
		row.NextDefaultOwner, row.Releasers, row.Handover = "", nil, nil
	}
	a.putProvider(row)
	a.touchProvider(provider)
}

// successor is the named next default owner, else the shard of the provider that registered first.
func (a *applier) successor(row *pb.Provider) string {
	if next := row.GetNextDefaultOwner(); next != "" {
		return next
	}
	best := ""
	for id := range a.s.ShardsOf(row.GetName()) {
		if best == "" || a.s.shards.get(id).GetRegisteredIndex() < a.s.shards.get(best).GetRegisteredIndex() {
			best = id
		}
	}
	return best
}

// changeProvider moves a shard to another provider. Its exceptions stay behind: they are about machines it no longer
// sees.
func (a *applier) changeProvider(id, provider string) {
	sh := proto.CloneOf(a.s.shards.get(id))
	old := sh.GetProvider()
	if old == provider {
		return
	}
	a.abandonQuotas(id)
	a.abandonExceptions(id)
	a.letGo(id)
	sh.Provider = provider
	a.putShard(sh)
	a.leaveProvider(id, old)
	a.abandonMoves(id)
	a.joinProvider(id, provider)
	a.claimAgain(id, provider)
}

func (a *applier) upsertProvider(op *pb.UpsertProvider) *Refusal {
	want := op.GetProvider()
	if !validProvider(want.GetName()) {
		return invalid("a provider needs a printable name")
	}
	for _, key := range want.GetPartitionKeys() {
		if !validLabelKey(key) {
			return invalid("partition key %q is not a label key", key)
		}
	}
	old := a.s.providers.get(want.GetName())
	if refusal := a.checkProvider(want, old); refusal != nil {
		return refusal
	}
	row := &pb.Provider{Name: want.GetName()}
	if old != nil {
		row = proto.CloneOf(old)
	}
	row.Region, row.UnownedPolicy = want.GetRegion(), want.GetUnownedPolicy()
	row.Addresses = slices.Compact(slices.Sorted(slices.Values(want.GetAddresses())))
	row.PartitionKeys = slices.Clone(want.GetPartitionKeys())
	if len(row.PartitionKeys) == 0 {
		row.PartitionKeys = []string{ZoneKey}
	}
	a.takeAddresses(row)
	a.putProvider(row)
	for sh := range a.s.Shards() {
		if Live(sh) && slices.Contains(row.Addresses, sh.GetProviderAddress()) {
			a.changeProvider(sh.GetShardId(), row.Name)
		}
	}
	if want.GetDefaultOwner() != "" {
		a.nameDefaultOwner(row.Name, want.GetDefaultOwner())
	}
	a.touchProvider(row.Name)
	return nil
}

// checkProvider holds the checks that need the old row and the shards.
func (a *applier) checkProvider(want *v1.ProviderRegistration, old *pb.Provider) *Refusal {
	var fallen []string
	for id := range a.s.ShardsOf(want.GetName()) {
		if !slices.Contains(want.GetAddresses(), a.s.shards.get(id).GetProviderAddress()) {
			fallen = append(fallen, id)
		}
	}
	if len(fallen) > 0 {
		return refused("address-in-use", "keep their addresses in the list", "shards report an address of provider %q that the new list lacks", want.GetName()).blocked(fallen...)
	}
	if owner := want.GetDefaultOwner(); owner != "" {
		sh, refusal := a.liveShard(owner)
		if refusal != nil {
			return refusal
		}
		if sh.GetProvider() != want.GetName() && !slices.Contains(want.GetAddresses(), sh.GetProviderAddress()) {
			return refused("other-provider", "name a shard of this provider", "shard %q uses provider %q", owner, sh.GetProvider())
		}
	}
	if old == nil {
		return nil
	}
	inUse := a.keysInUse(old.GetName())
	if before, after := keep(old.GetPartitionKeys(), inUse), keep(want.GetPartitionKeys(), inUse); !slices.Equal(before, after) {
		// A change of order or the loss of a key would give machines a new owner before the old one let go.
		return refused("keys-in-use", "unassign the domains of these keys first", "the order of partition keys with assigned domains cannot change").blocked(before...)
	}
	return nil
}

// keysInUse is the set of domain keys that shards of a provider own.
func (a *applier) keysInUse(provider string) map[string]bool {
	out := map[string]bool{}
	for id := range a.s.ShardsOf(provider) {
		for d := range a.s.DomainsOf(id) {
			out[d.GetKey()] = true
		}
	}
	return out
}

func keep(keys []string, in map[string]bool) []string {
	var out []string
	for _, key := range keys {
		if in[key] {
			out = append(out, key)
		}
	}
	return out
}

// takeAddresses removes the row's addresses from other rows; a row that nothing is left of goes away.
func (a *applier) takeAddresses(row *pb.Provider) {
	for _, address := range row.GetAddresses() {
		name, ok := a.s.ProviderOf(address)
		if !ok || name == row.GetName() {
			continue
		}
		other := proto.CloneOf(a.s.providers.get(name))
		other.Addresses = slices.DeleteFunc(other.Addresses, func(s string) bool { return s == address })
		a.putProvider(other)
	}
}

// nameDefaultOwner starts the handover of what no domain assigns (COORD-9.5).
func (a *applier) nameDefaultOwner(provider, owner string) {
	row := proto.CloneOf(a.s.providers.get(provider))
	row.DefaultOwnerNamed = true
	switch row.GetDefaultOwner() {
	case owner:
		row.NextDefaultOwner, row.Releasers, row.Handover = "", nil, nil
	case "":
		row.DefaultOwner = owner
	default:
		if row.GetNextDefaultOwner() != owner {
			row.NextDefaultOwner, row.Handover = owner, a.version
			row.Releasers = []*pb.Releaser{{ShardId: row.GetDefaultOwner(), View: a.version}}
		}
	}
	a.putProvider(row)
	a.touchProvider(provider)
}

func (a *applier) finishDefaultOwner(op *pb.FinishDefaultOwner) *Refusal {
	row := a.s.providers.get(op.GetProvider())
	if row.GetNextDefaultOwner() == "" || !SameView(row.GetHandover(), op.GetHandover()) {
		return nil
	}
	row = proto.CloneOf(row)
	row.DefaultOwner = row.GetNextDefaultOwner()
	row.NextDefaultOwner, row.Releasers, row.Handover = "", nil, nil
	a.putProvider(row)
	a.touchProvider(row.GetName())
	return nil
}

func (a *applier) removeProvider(op *pb.RemoveProvider) *Refusal {
	row := a.s.providers.get(op.GetName())
	if row == nil {
		return unknown("provider", op.GetName())
	}
	r := refused("provider-in-use", "remove the shards or point them elsewhere", "shards report provider %q", op.GetName())
	for id := range a.s.ShardsOf(op.GetName()) {
		_ = r.blocked(id)
	}
	if len(r.Blockers) > 0 {
		return r
	}
	for _, q := range a.s.quotas.under(op.GetName() + sep) {
		a.dropQuota(q)
	}
	for _, e := range a.s.exceptions.under(op.GetName() + sep) {
		a.removeException(e)
	}
	a.dropProvider(op.GetName())
	return nil
}
