package shards

import (
	"testing"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-9.4: two shards that reach one provider under two addresses share it: exactly one of them owns what no domain assigns, and
// neither hears that it is the only shard. That holds under a new leader, whichever shard reports first.
func TestOneStoreUnderTwoAddresses(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		cycle := int64(0)
		report := func(shard, address string, stores ...string) {
			t.Helper()
			cycle++
			if _, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: shard, Cycle: cycle,
				Summary: &v1.ShardSummary{ProviderAddress: address, ProviderStores: stores}}); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string) {
			t.Helper()
			st, owners := f.group.State(), 0
			for _, id := range []string{"a", "b"} {
				v := st.View(id)
				if v.GetOnlyShard() || v.GetProvider() != "localhost:9000" {
					t.Errorf("%s: %s has provider %s, and is the only one: %v", when, id, v.GetProvider(), v.GetOnlyShard())
				}
				if v.GetDefaultOwner() {
					owners++
				}
			}
			if owners != 1 {
				t.Errorf("%s: %d shards own what no domain assigns", when, owners)
			}
		}
		report("a", "localhost:9000", "store-1")
		report("b", "127.0.0.1:9000") // not known yet
		report("b", "127.0.0.1:9000", "store-1")
		check("at first")
		f.lead()
		report("b", "127.0.0.1:9000", "store-1")
		check("under a new leader")
		report("a", "localhost:9000", "store-1")
		check("when both have reported to it")
		report("c", "other:9000", "store-2")
		if v := f.group.State().View("c"); !v.GetOnlyShard() {
			t.Error("a shard with another store does not own its provider")
		}
		var audited int
		for row := range f.group.State().AuditNewestFirst(0) {
			if row.GetRecord().GetMethod() == "one-provider-two-addresses" {
				audited++
			}
		}
		if audited != 1 {
			t.Errorf("%d audit records", audited)
		}
	})
}
