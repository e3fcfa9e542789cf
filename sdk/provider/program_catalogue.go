package provider

import (
	"strconv"
)

// GeneralCatalogue makes about that many slots out of a few general types in three zones, for trials and tests. Prices are
// of the size that clouds publish, and of no cloud in particular.
func GeneralCatalogue(slots int) []Offering {
	types := []struct {
		name  string
		cpu   int
		gib   int
		price float64
	}{{"g1.large", 2, 8, 0.10}, {"g1.xlarge", 4, 16, 0.20}, {"g1.2xlarge", 8, 32, 0.40}, {"g1.4xlarge", 16, 64, 0.80}}
	zones := []string{"local-a", "local-b", "local-c"}
	classes := []struct {
		class     CapacityType
		factor, p float64
		share     int // of ten
	}{{OnDemand, 1, 0, 6}, {Spot, 0.35, 0.03, 3}, {Reserved, 0.6, 0, 1}}
	var out []Offering
	rest := slots
	cells := len(types) * len(zones) * 10
	for _, t := range types {
		for _, zone := range zones {
			for _, c := range classes {
				count := slots * c.share / cells
				rest -= count
				out = append(out, Offering{Count: count, Attributes: Attributes{
					InstanceType: t.name, Zone: zone, CapacityType: c.class, PricePerHour: t.price * c.factor, InterruptionProbability: c.p,
					Resources:   map[string]string{"cpu": strconv.Itoa(t.cpu), "memory": strconv.Itoa(t.gib) + "Gi"},
					Allocatable: map[string]string{"cpu": strconv.Itoa(t.cpu*1000-70) + "m", "memory": strconv.Itoa(t.gib*1024-512) + "Mi", "pods": "110"},
					Labels:      map[string]string{"topology.kubernetes.io/region": "local", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
				}})
			}
		}
	}
	for i := 0; rest > 0; i, rest = i+3, rest-1 { // the remainder of the division, on demand
		out[i%len(out)].Count++
	}
	return out
}
