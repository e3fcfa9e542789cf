package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// frame is a set of dimensions and a node overhead: all amounts of one cluster are vectors of equal length in its
// frame, and the supply of a class for that cluster is a row of it (ENG-3.6). Clusters that ask for the same dimensions
// with the same overhead share a frame.
type frame struct {
	id       string         // overhead and dimensions, spelled out
	dims     []resource.Dim // ascending
	overhead resource.Vector
	supply   []int64 // by class, len(dims) each
	serial   []uint32
	version  uint64
	stores   [demand.Pinned + 1]*market // of all machines, by bucket
}

// of returns the supply of a class.
func (f *frame) of(class uint32) []int64 {
	k := len(f.dims)
	return f.supply[int(class)*k : int(class)*k+k]
}

func (f *frame) sync(inv *inventory.Table) {
	if f.version == inv.ClassVersion() && f.serial != nil {
		return
	}
	f.version = inv.ClassVersion()
	k := len(f.dims)
	if n := inv.Classes(); n > len(f.serial) {
		f.serial = append(f.serial, make([]uint32, n-len(f.serial))...)
		f.supply = append(f.supply, make([]int64, n*k-len(f.supply))...)
	}
	for id := range f.serial {
		c := inv.Class(uint32(id))
		if c.Serial == 0 || f.serial[id] == c.Serial {
			continue
		}
		f.serial[id] = c.Serial
		row := f.of(uint32(id))
		for j, d := range f.dims {
			row[j] = max(0, c.Supply.Get(d)-f.overhead.Get(d))
		}
	}
}

// project writes a vector of the demand into the frame's order.
func (f *frame) project(v *resource.Vector, into []int64) {
	for j, d := range f.dims {
		into[j] = v.Get(d)
	}
}

// vector is the opposite of project.
func (f *frame) vector(from []int64) resource.Vector {
	var v resource.Vector
	for j, d := range f.dims {
		if from[j] > 0 {
			v = v.With(d, from[j])
		}
	}
	return v
}

// addDims adds the dimensions of a vector to a list.
func addDims(list []resource.Dim, v *resource.Vector) []resource.Dim {
	for i := range v.Len() {
		d := v.Dim(i)
		if i < len(list) && list[i] == d || slices.Contains(list, d) { // mostly all name the same
			continue
		}
		list = append(list, d)
	}
	return list
}

// dimsOf lists the dimensions that the rows of a cluster name, ascending.
func dimsOf(needs []demand.Need) (dims []resource.Dim) {
	for i := range needs {
		dims = addDims(addDims(dims, &needs[i].Aggregate), &needs[i].MinUnit)
	}
	slices.Sort(dims)
	return dims
}

// The arithmetic of vectors in a frame. All amounts are at least 0.

func zero(v []int64) bool {
	for _, x := range v {
		if x > 0 {
			return false
		}
	}
	return true
}

// coversAll reports whether have is at least want in every dimension.
func coversAll(have, want []int64) bool {
	for j, w := range want {
		if have[j] < w {
			return false
		}
	}
	return true
}

// touches reports whether some dimension is positive in both.
func touches(a, b []int64) bool {
	for j, x := range a {
		if x > 0 && b[j] > 0 {
			return true
		}
	}
	return false
}

// less subtracts b from a, not below 0.
func less(a, b []int64) {
	for j, x := range b {
		a[j] = max(0, a[j]-x)
	}
}

// more adds b to a, saturating.
func more(a, b []int64) {
	for j, x := range b {
		a[j] = resource.AddSat(a[j], x)
	}
}
