package up

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// offerings is a small cloud: three zones, four racks in each, general machines in two sizes and some with GPUs. Prices are of
// the order that clouds publish; owned hardware costs nothing more.
func offerings() []provider.Offering {
	var out []provider.Offering
	for zone := range zones {
		for rack := range 4 {
			place := fmt.Sprintf("%c%d", 'a'+zone, rack)
			add := func(kind, instanceType string, class provider.CapacityType, count int, price, probability float64, resources map[string]string) {
				out = append(out, provider.Offering{Name: kind + "-" + place, Count: count, Attributes: provider.Attributes{
					InstanceType: instanceType, Zone: zoneName(zone), CapacityType: class, PricePerHour: price,
					InterruptionProbability: probability, Resources: resources, Labels: map[string]string{rackKey: place},
				}})
			}
			general := map[string]string{"cpu": "8", "memory": "32Gi", "pods": "110"}
			if rack == 0 {
				add("metal", "m.metal", provider.BareMetal, 1, 0, 0, map[string]string{"cpu": "16", "memory": "64Gi", "pods": "110"})
			}
			add("spot", "m.8x", provider.Spot, 3, 0.11, 0.02, general)
			add("ondemand", "m.8x", provider.OnDemand, 3, 0.38, 0, general)
			add("gpu", "g.8x", provider.OnDemand, 1, 3.06, 0, map[string]string{"cpu": "8", "memory": "61Gi", "nvidia.com/gpu": "1", "pods": "110"})
		}
	}
	return out
}

// zones is how many zones the simulated cloud has.
const zones = 3

func zoneName(i int) string { return fmt.Sprintf("demo-1%c", 'a'+i) }

// few is the cloud of `all-in-one`: eight small machines and eight with a GPU, for clusters that come from elsewhere.
func few() []provider.Offering {
	return []provider.Offering{
		{Name: "small", Count: 8, Attributes: provider.Attributes{InstanceType: "m.2x", Zone: zoneName(0), CapacityType: provider.OnDemand, PricePerHour: 0.1,
			Resources: map[string]string{"cpu": "2", "memory": "8Gi", "pods": "110"}}},
		{Name: "gpu", Count: 8, Attributes: provider.Attributes{InstanceType: "g.8x", Zone: zoneName(0), CapacityType: provider.OnDemand, PricePerHour: 3.06,
			Resources: map[string]string{"cpu": "8", "memory": "61Gi", "nvidia.com/gpu": "1", "pods": "110"}}},
	}
}
