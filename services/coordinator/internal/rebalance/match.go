package rebalance

import (
	"slices"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// allows reports whether machines of a kind may satisfy requirements. A requirement on a key that buckets do not answer
// is "maybe": the donor decides with the real matcher (COORD-12.6). So is a label that the bucket left empty.
func allows(r *Requirements, k *Kind) bool {
	for _, req := range r.Wire {
		var value string
		switch req.GetKey() {
		case keyType:
			value = k.InstanceType
		case keyZone:
			value = k.Zone
		case keyRegion:
			value = k.Region
		case keyArch:
			value = k.Arch
		case keyOS:
			value = k.OS
		default:
			continue
		}
		if value == "" {
			continue
		}
		listed := slices.Contains(req.GetValues(), value)
		switch req.GetOperator() {
		case v1.NodeSelectorRequirement_OPERATOR_IN:
			if !listed {
				return false
			}
		case v1.NodeSelectorRequirement_OPERATOR_NOT_IN:
			if listed {
				return false
			}
		case v1.NodeSelectorRequirement_OPERATOR_DOES_NOT_EXIST:
			return false
		}
	}
	return true
}

// covers reports whether one machine has room for the largest indivisible unit.
func covers(allocatable, unit *Vector) bool {
	for _, d := range unit.Dims {
		if milliOf(allocatable.Dims, d.Name) < d.Milli {
			return false
		}
	}
	return true
}

// machinesFor is how many machines of a size a deficit asks for: the largest quotient over its dimensions. A machine
// that lacks a dimension cannot help, which is 0.
func machinesFor(deficit []Dim, allocatable *Vector) int64 {
	var most int64
	for _, d := range deficit {
		have := milliOf(allocatable.Dims, d.Name)
		if have <= 0 {
			return 0
		}
		n := d.Milli / have
		if d.Milli%have != 0 {
			n++
		}
		most = max(most, n)
	}
	return most
}

func milliOf(dims []Dim, name uint32) int64 {
	for _, d := range dims {
		if d.Name == name {
			return d.Milli
		}
	}
	return 0
}

// reduce takes what n machines cover off a deficit.
func reduce(deficit []Dim, allocatable *Vector, n int64) []Dim {
	var out []Dim
	for _, d := range deficit {
		have := milliOf(allocatable.Dims, d.Name)
		if have > 0 && n >= (d.Milli+have-1)/have {
			continue
		}
		out = append(out, Dim{d.Name, d.Milli - have*n})
	}
	return out
}
