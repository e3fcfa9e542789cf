package shard_test

import (
	"testing"
	"time"

	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-6.10: a running shard compares its plans with full ones beside its loop, in a quiet fleet every ten minutes, and none differs.
func TestRunningShardComparesItsPlans(t *testing.T) {
	inVirtualTime(t, NewProvider(slots(4)...), nil, func(v *virtual) {
		v.operator("red").Rollup(Need("8", 0))
		wait(31 * time.Minute)
		if n := v.counter("bigfleet_shard_plan_comparisons_total"); n != 3 {
			t.Errorf("%v plans were compared in 31 minutes, want 3", n)
		}
		if n := v.counter("bigfleet_shard_plan_mismatch_total"); n != 0 {
			t.Errorf("%v plans differed", n)
		}
	})
}

// counter is the value of a counter without labels.
func (v *virtual) counter(name string) (value float64) {
	families, err := v.tel.Registry.Gather()
	if err != nil {
		v.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			value = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return value
}
