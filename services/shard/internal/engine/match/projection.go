package match

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Projection is a list of dimensions, a node overhead, and what is learnt of Nodes. All amounts of one cluster are slices in the order of these dimensions,
// and a row of the projection is the supply of a class for that cluster (ENG-3.6). Clusters that ask for the same dimensions
// with the same overhead, and have learnt the same, share a projection.
type Projection struct {
	Number   int             // its position in Catalog.everyF
	Dims     []resource.Dim  // ascending
	cluster  *demand.Cluster // what one of the clusters has learnt, and its overhead
	unstated []int64         // by dimension, of machines that do not name it
	supply   []int64         // by class, len(dims) each
	Serial   []uint32
	version  uint64
}

// Supply returns the supply of a class.
func (f *Projection) Supply(class uint32) []int64 {
	k := len(f.Dims)
	return f.supply[int(class)*k : int(class)*k+k]
}

// sync brings the supplies up to date with the classes of the table.
func (f *Projection) sync(inv *inventory.Table) {
	if f.version == inv.ClassVersion() && f.Serial != nil {
		return
	}
	f.version = inv.ClassVersion()
	k := len(f.Dims)
	if n := inv.Classes(); n > len(f.Serial) {
		f.Serial = append(f.Serial, make([]uint32, n-len(f.Serial))...)
		f.supply = append(f.supply, make([]int64, n*k-len(f.supply))...)
	}
	for id := range f.Serial {
		c := inv.Class(uint32(id))
		if c.Serial == 0 || f.Serial[id] == c.Serial {
			continue
		}
		f.Serial[id] = c.Serial
		row := f.Supply(uint32(id))
		for j, d := range f.Dims {
			row[j] = f.cluster.Offer(inv.Shape(c.Shape).Type, &c.Supply, d, f.unstated[j])
		}
	}
}

// sameLimits reports whether the dimensions still are the limits that they were: numbers are given again.
func (f *Projection) sameLimits(dims *symbol.Table) bool {
	for j, d := range f.Dims {
		if f.unstated[j] != resource.Unstated(dims.Text(d)) {
			return false
		}
	}
	return true
}

// Project writes a vector in the order of the dimensions. Both are in ascending order.
func (f *Projection) Project(v *resource.Vector, into []int64) {
	i, n := 0, v.Len()
	for j, d := range f.Dims {
		for i < n && v.Dim(i) < d {
			i++
		}
		if into[j] = 0; i < n && v.Dim(i) == d {
			into[j] = v.Val(i)
		}
	}
}

// Vector is the opposite of Project.
func (f *Projection) Vector(from []int64) resource.Vector {
	var v resource.Vector
	for j, d := range f.Dims {
		if from[j] > 0 {
			v = v.With(d, from[j])
		}
	}
	return v
}

// AddDims adds the dimensions of a vector to a list.
func AddDims(list []resource.Dim, v *resource.Vector) []resource.Dim {
	for i := range v.Len() {
		d := v.Dim(i)
		if i < len(list) && list[i] == d || slices.Contains(list, d) { // most needs name the same dimensions
			continue
		}
		list = append(list, d)
	}
	return list
}

// DimsOf lists the dimensions that the rows of a cluster name, ascending.
func DimsOf(needs []demand.Need) (dims []resource.Dim) {
	for i := range needs {
		dims = AddDims(AddDims(dims, &needs[i].Aggregate), &needs[i].MinUnit)
	}
	slices.Sort(dims)
	return dims
}

// The arithmetic of vectors in a frame. All amounts are at least 0.
