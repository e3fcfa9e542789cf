package core

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// SHARD-21.2: machines are counted by type, zone, capacity type, architecture, system and region, in calls of any length. A bucket offers what each of its machines has, at the price of
// the cheapest.
func TestSupplyIsCounted(t *testing.T) {
	amounts := func(cpu, memory int64) (out []resource.Quantity) {
		if cpu > 0 {
			out = append(out, resource.Quantity{Name: "cpu", Milli: cpu})
		}
		return append(out, resource.Quantity{Name: "memory", Milli: memory})
	}
	machine := func(i int, price int64, edit func(*inventory.Machine)) inventory.Machine {
		m := slot(fmt.Sprintf("m%02d", i))
		m.Price, m.Resources = price, amounts(4000, 8000)
		if edit != nil {
			edit(&m)
		}
		return m
	}
	label := func(key, value string) func(*inventory.Machine) {
		return func(m *inventory.Machine) { m.Labels = []inventory.Label{{Key: key, Value: value}} }
	}
	w := newWorld(t, nil,
		machine(1, 300_000, nil),
		machine(2, 200_000, func(m *inventory.Machine) { m.Resources = amounts(0, 9000) }),
		machine(3, 400_000, func(m *inventory.Machine) { m.Allocatable = amounts(3000, 7000) }),
		machine(4, 300_000, func(m *inventory.Machine) {
			*m = host("m04", inventory.Idle, "")
			m.Price, m.Resources = 300_000, amounts(4000, 8000)
		}),
		machine(5, 300_000, func(m *inventory.Machine) { *m = host("m05", inventory.Configured, "red"); m.Zone = "y" }),
		machine(6, 300_000, label("kubernetes.io/arch", "arm64")),
		machine(7, 300_000, label("kubernetes.io/os", "windows")),
		machine(8, 300_000, label("topology.kubernetes.io/region", "r1")),
		machine(9, 300_000, label("kubernetes.io/hostname", "m09")),
	)
	w.run(Minute)
	free := func(price int64, offer []resource.Quantity, n ...int32) *Supply {
		s := &Supply{Price: price, Offer: offer}
		for i := 0; i < len(n); i += 2 {
			s.States[n[i]] = n[i+1]
		}
		return s
	}
	slots, idle, configured := int32(inventory.Speculative), int32(inventory.Idle), int32(inventory.Configured)
	base := SupplyKey{Type: "m4", Zone: "z", Capacity: inventory.OnDemand}
	with := func(edit func(*SupplyKey)) SupplyKey { k := base; edit(&k); return k }
	want := map[SupplyKey]*Supply{
		base: free(200_000, amounts(0, 7000), slots, 4, idle, 1),
		with(func(k *SupplyKey) { k.Zone = "y" }):     free(1_000_000, []resource.Quantity{{Name: "cpu", Milli: 4000}}, configured, 1),
		with(func(k *SupplyKey) { k.Arch = "arm64" }): free(300_000, amounts(4000, 8000), slots, 1),
		with(func(k *SupplyKey) { k.OS = "windows" }): free(300_000, amounts(4000, 8000), slots, 1),
		with(func(k *SupplyKey) { k.Region = "r1" }):  free(300_000, amounts(4000, 8000), slots, 1),
	}
	for _, n := range []int{1, 4, 1000} {
		got := map[SupplyKey]*Supply{}
		for next := 0; next >= 0; {
			next = w.c.CountSupply(got, next, n)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("by %d machines:", n)
			for k := range want {
				t.Errorf("%+v: %+v, want %+v", k, got[k], want[k])
			}
			for k := range got {
				if want[k] == nil {
					t.Errorf("%+v: %+v, want none", k, got[k])
				}
			}
		}
	}
}
