package shards

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// storesOf names the stores behind a reported provider address, or "".
func storesOf(summary *v1.ShardSummary) string {
	if len(summary.GetProviderStores()) > storesMax {
		return ""
	}
	return strings.Join(summary.GetProviderStores(), ",")
}

// joinStores makes one provider of two that have the same stores behind different addresses. Otherwise each of their shards would
// own every machine (COORD-9.4). The provider of the shard that registered first stays and takes over the other's addresses.
// Only a report that names other stores than the shard's last one can change something.
func (d *ShardRegistry) joinStores(ctx context.Context, s *shard, r *v1.ShardReport) error {
	st := d.config.Group.State()
	mine, stores := st.Shard(s.id), storesOf(r.GetSummary())
	s.mu.Lock()
	known := s.heard && storesOf(s.summary) == stores
	s.mu.Unlock()
	if known || stores == "" || !fleet.Live(mine) {
		return nil
	}
	for _, other := range d.withStores(st, stores) {
		if other.GetProvider() == mine.GetProvider() {
			continue
		}
		stays, goes := mine, other
		if other.GetRegisteredIndex() < mine.GetRegisteredIndex() {
			stays, goes = other, mine
		}
		keep := st.Provider(stays.GetProvider())
		addresses := append(slices.Clone(keep.GetAddresses()), st.Provider(goes.GetProvider()).GetAddresses()...)
		d.config.Log.Error("one provider is reported under two addresses: they count as one from now on; give all its shards the same --provider-addr",
			"stores", stores, "provider", stays.GetProvider(), "other", goes.GetProvider(), "shard", goes.GetShardId())
		ops := []*pb.Operation{{Kind: &pb.Operation_UpsertProvider{UpsertProvider: &pb.UpsertProvider{Provider: &v1.ProviderRegistration{
			Name: keep.GetName(), Addresses: addresses, PartitionKeys: keep.GetPartitionKeys(), Region: keep.GetRegion(), UnownedPolicy: keep.GetUnownedPolicy()}}}}}
		results, err := d.registrar.commit(ctx, append(ops, d.audited(goes.GetShardId(), "one-provider-two-addresses",
			sprintf("%s and %s have the same store: shards of both share one provider now", stays.GetProvider(), goes.GetProvider()))...)...)
		if err == nil && results[0] != nil {
			return results[0]
		}
		return err
	}
	return nil
}

// withStores lists the live shards whose last report named these stores, in the order of their registration.
func (d *ShardRegistry) withStores(st *fleet.State, stores string) (out []*pb.Shard) {
	for _, s := range d.all() {
		s.mu.Lock()
		same := s.heard && storesOf(s.summary) == stores
		s.mu.Unlock()
		if row := st.Shard(s.id); same && fleet.Live(row) {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b *pb.Shard) int { return cmp.Compare(a.GetRegisteredIndex(), b.GetRegisteredIndex()) })
	return out
}
