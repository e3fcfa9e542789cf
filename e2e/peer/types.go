package main

import (
	"fmt"
	"strings"
)

// machineType is a type that both sides can buy, on demand, in every zone.
type machineType struct {
	name        string
	cpu, memory int // GiB
	price       float64
}

var zones = []string{"test-zone-a", "test-zone-b", "test-zone-c"}

const slots = 200 // of each type in each zone, for BigFleet; Karpenter's provider has no limit

// catalogue is two families from 2 to 32 cpu, priced as Karpenter's sample catalogue prices them.
func catalogue() (out []machineType) {
	for _, family := range []struct {
		name  string
		ratio int
	}{{"c", 2}, {"s", 4}} {
		for _, cpu := range []int{2, 4, 8, 16, 32} {
			memory := cpu * family.ratio
			out = append(out, machineType{fmt.Sprintf("%s-%dx", family.name, cpu), cpu, memory, float64(cpu)*0.025 + float64(memory)*0.001})
		}
	}
	return out
}

// What Karpenter's provider keeps of each node for its kubelet; ours gets the same.
const (
	reservedMilliCPU = 100
	reservedMiB      = 10
)

func offerings(types []machineType) string {
	var b strings.Builder
	b.WriteString("offerings:\n")
	for _, t := range types {
		fmt.Fprintf(&b, "- {name: %s, instance_type: %s, zones: [%s], capacity_type: on_demand, count: %d, price_per_hour: %.4f,"+
			" resources: {cpu: \"%d\", memory: %dGi, pods: \"110\"}, allocatable: {cpu: %dm, memory: %dMi, pods: \"110\"},"+
			" labels: {kubernetes.io/os: linux, kubernetes.io/arch: amd64}}\n",
			t.name, t.name, strings.Join(zones, ", "), slots, t.price, t.cpu, t.memory, t.cpu*1000-reservedMilliCPU, t.memory*1024-reservedMiB)
	}
	return b.String()
}

// karpenterTypes is the same in the form of Karpenter's file.
func karpenterTypes(types []machineType) (out []map[string]any) {
	for _, t := range types {
		var offered []map[string]any
		for _, zone := range zones {
			offered = append(offered, map[string]any{"Price": t.price, "Available": true, "Requirements": []map[string]any{
				{"key": "karpenter.sh/capacity-type", "operator": "In", "values": []string{"on-demand"}},
				{"key": "topology.kubernetes.io/zone", "operator": "In", "values": []string{zone}},
			}})
		}
		out = append(out, map[string]any{"name": t.name, "offerings": offered, "architecture": "amd64", "operatingSystems": []string{"linux"},
			"resources": map[string]string{"cpu": fmt.Sprint(t.cpu), "memory": fmt.Sprint(t.memory, "Gi"), "pods": "110"}})
	}
	return out
}
