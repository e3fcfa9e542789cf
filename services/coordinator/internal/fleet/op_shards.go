package fleet

import (
	"fmt"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func (a *applier) addShard(op *pb.AddShard) *Refusal {
	id := op.GetShardId()
	if !validID(id) {
		return invalid("shard id %q is not 1 to 128 letters, digits, dots, dashes or underscores", id)
	}
	if old := a.s.shards.get(id); old != nil {
		if !Live(old) {
			return refused("shard-removed", "readmit it", "shard %q was removed by %s", id, old.GetRemovedBy())
		}
		if old.GetAddress() == op.GetAddress() && old.GetProviderAddress() == op.GetProviderAddress() {
			return nil
		}
		return refused("shard-registered", "", "shard %q is registered with another address or provider", id)
	}
	provider, refusal := a.providerFor(op.GetProviderAddress())
	if refusal != nil {
		return refusal
	}
	sh := &pb.Shard{
		ShardId: id, Address: op.GetAddress(), Provider: provider, ProviderAddress: op.GetProviderAddress(),
		RegisteredAtUnixNanos: a.at, RegisteredIndex: a.s.index, State: v1.ShardState_SHARD_STATE_ACTIVE, Epoch: op.GetEpoch(),
	}
	a.putShard(sh)
	a.joinProvider(id, provider)
	return nil
}

// updateShard changes what is set. A lower epoch changes nothing unless an admin resets it (COORD-7.5).
func (a *applier) updateShard(op *pb.UpdateShard) *Refusal {
	old, refusal := a.liveShard(op.GetShardId())
	if refusal != nil {
		return refusal
	}
	sh := proto.CloneOf(old)
	if op.Address != nil {
		sh.Address = op.GetAddress()
	}
	if op.Epoch != nil && (op.GetEpoch() > sh.GetEpoch() || op.GetResetEpoch()) {
		sh.Epoch = op.GetEpoch()
	}
	switch op.GetState() {
	case v1.ShardState_SHARD_STATE_UNSPECIFIED:
	case v1.ShardState_SHARD_STATE_ACTIVE, v1.ShardState_SHARD_STATE_DRAINING:
		sh.State = op.GetState()
	default:
		return invalid("a shard cannot be set to state %d", op.GetState())
	}
	provider := sh.GetProvider()
	if op.ProviderAddress != nil {
		if provider, refusal = a.providerFor(op.GetProviderAddress()); refusal != nil {
			return refusal
		}
		sh.ProviderAddress = op.GetProviderAddress()
	}
	if !proto.Equal(old, sh) {
		a.putShard(sh)
	}
	if provider != old.GetProvider() {
		a.changeProvider(sh.GetShardId(), provider)
	}
	return nil
}

// removeShard takes everything from a shard and leaves a tombstone (COORD-3.3, 7.9).
func (a *applier) removeShard(op *pb.RemoveShard) *Refusal {
	id := op.GetShardId()
	sh := a.s.shards.get(id)
	if sh == nil {
		return unknown("shard", id)
	}
	if !Live(sh) {
		return nil
	}
	if !op.GetForce() {
		if blockers := a.s.RemovalBlockers(id); len(blockers) > 0 {
			r := refused("shard-in-use", "move them away first, or force the removal", "shard %q still owns something", id)
			r.Force = true
			return r.blocked(blockers...)
		}
	}
	a.abandonClusters(id)
	a.abandonDomains(id)
	a.dropReleaser(id)
	a.abandonQuotas(id)
	a.abandonExceptions(id)
	sh = proto.CloneOf(sh)
	provider := sh.GetProvider()
	sh.State, sh.RemovedAtUnixNanos, sh.RemovedBy = v1.ShardState_SHARD_STATE_TOMBSTONED, a.at, a.actor
	a.putShard(sh)
	a.leaveProvider(id, provider)
	a.abandonMoves(id)
	return nil
}

// RemovalBlockers names what a shard still owns, for a removal without force (COORD-16.1).
func (s *State) RemovalBlockers(id string) []string {
	var out []string
	add := func(format string, args ...any) {
		if len(out) < BlockersMax {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	for c := range s.ClustersOf(id) {
		if c.GetShardId() == id {
			add("cluster %s", c.GetClusterId())
		}
	}
	for d := range s.DomainsOf(id) {
		add("domain %s=%s", d.GetKey(), d.GetValue())
	}
	provider := s.providers.get(s.shards.get(id).GetProvider())
	if provider.GetDefaultOwner() == id && s.shardsOfCount(provider.GetName()) > 1 {
		add("default ownership of provider %s", provider.GetName())
	}
	return out
}

func (a *applier) readmitShard(op *pb.ReadmitShard) *Refusal {
	sh := a.s.shards.get(op.GetShardId())
	if sh == nil {
		return unknown("shard", op.GetShardId())
	}
	if !Live(sh) {
		a.dropShard(sh.GetShardId())
	}
	return nil
}

func (s *State) shardsOfCount(provider string) int {
	n := 0
	for range s.ShardsOf(provider) {
		n++
	}
	return n
}

// onlyShard reports whether id is the only shard of its provider, so that no shard has to release anything.
func (s *State) onlyShard(id, provider string) bool {
	for other := range s.ShardsOf(provider) {
		if other != id {
			return false
		}
	}
	return true
}
