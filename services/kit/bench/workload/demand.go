package workload

import (
	"fmt"
	"math/rand/v2"
)

// Form says what a need asks for beside an amount.
type Form uint8

// The forms of W-demand. Impossible needs exist so that 95 % can be met.
const (
	Plain      Form = iota // any machine
	Typed                  // one of a few instance types
	Spread                 // over zones, hard, skew 1
	Same                   // all in one rack
	Impossible             // more than any machine has, or a type that does not exist
)

// Demand is needs in columns: the r-th entry of each slice belongs to row r. Rows First[c] to First[c+1] are those of
// cluster c. No two rows of a cluster are equal in profile and group.
type Demand struct {
	First []int32

	Form         []Form
	Types        []uint64 // set of Kinds, by bit; 0 means any
	Priority     []int32
	Interruption []uint8 // bucket, numbered as on the wire
	Reclamation  []uint8
	Group        []string

	CPU, Memory, GPU             []int64 // aggregate: thousandths of a core, bytes, pieces
	UnitCPU, UnitMemory, UnitGPU []int64
	base                         []int64 // CPU as generated; churn moves around it
}

// Clusters is the number of clusters.
func (d *Demand) Clusters() int { return len(d.First) - 1 }

// Rows is the number of needs.
func (d *Demand) Rows() int { return len(d.Form) }

// ClusterOf returns the cluster of a row.
func (d *Demand) ClusterOf(row int32) int32 {
	low, high := int32(0), int32(d.Clusters())
	for high-low > 1 {
		if mid := (low + high) / 2; d.First[mid] <= row {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// ClusterName is the id of cluster c.
func ClusterName(c int32) string { return fmt.Sprintf("cluster-%05d", c) }

func newDemand(counts []int) *Demand {
	d := &Demand{First: make([]int32, 1, len(counts)+1)}
	rows := 0
	for _, n := range counts {
		rows += n
		d.First = append(d.First, int32(rows))
	}
	d.Form, d.Types, d.Group = make([]Form, rows), make([]uint64, rows), make([]string, rows)
	d.Priority, d.Interruption, d.Reclamation = make([]int32, rows), make([]uint8, rows), make([]uint8, rows)
	for _, column := range []*[]int64{&d.CPU, &d.Memory, &d.GPU, &d.UnitCPU, &d.UnitMemory, &d.UnitGPU} {
		*column = make([]int64, rows)
	}
	return d
}

const rowsPerClusterMax = 200

// zipfCounts spreads m rows over c clusters by Zipf 1.1, between 1 and 200 each.
func zipfCounts(r *rand.Rand, c, m int) []int {
	if m < c || m > c*rowsPerClusterMax {
		panic(fmt.Sprintf("workload: %d needs do not fit %d clusters of 1 to %d", m, c, rowsPerClusterMax))
	}
	z := rand.NewZipf(r, 1.1, 1, rowsPerClusterMax-1)
	weights, total := make([]float64, c), 0.0
	for i := range weights {
		weights[i] = float64(z.Uint64()) + 1e-3 // a little, so that every cluster can take rows that are left
		total += weights[i]
	}
	counts, left := make([]int, c), m
	for i := range counts {
		counts[i] = min(rowsPerClusterMax, 1+int(weights[i]/total*float64(m-c)))
		left -= counts[i]
	}
	for left > 0 {
		if i := r.IntN(c); counts[i] < rowsPerClusterMax {
			counts[i]++
			left--
		}
	}
	return counts
}

var (
	priorities = [...]int32{0, 100, 1_000, 10_000, 1_000_000}
	buckets    = [...]uint8{1, 2, 3, 5, 8, 12}    // interruption: $0, $0.50, $1, $4, $32, $512
	worth      = [...]uint8{1, 2, 3, 4, 5, 8, 12} // reclamation: one more, so that 200 rows can all differ
)

// combinations of priority and the two buckets: 210, so each row of a cluster has its own.
const combinations = len(priorities) * len(buckets) * len(worth)

func (d *Demand) combine(row, combination int) {
	d.Priority[row] = priorities[combination%len(priorities)]
	d.Interruption[row] = buckets[combination/len(priorities)%len(buckets)]
	d.Reclamation[row] = worth[combination/len(priorities)/len(buckets)%len(worth)]
}

// drawForms gives each row its form: 70 % plain, 15 % typed, 10 % spread, 5 % same; then every twentieth of all
// becomes impossible. What makes rows of one cluster distinct is drawn here too.
func (d *Demand) drawForms(seed uint64) {
	for f, part := range parts(Stream(seed, "demand/form"), d.Rows(), 0.70, 0.15, 0.10) {
		for _, row := range part {
			d.Form[row] = Form(f)
		}
	}
	for _, row := range parts(Stream(seed, "demand/impossible"), d.Rows(), 0.05)[0] {
		d.Form[row] = Impossible
	}
	r := Stream(seed, "demand/combination")
	for c := range d.Clusters() {
		// 73 and 210 have no common factor, so 210 rows have 210 different combinations.
		at := r.IntN(combinations)
		for row := int(d.First[c]); row < int(d.First[c+1]); row++ {
			d.combine(row, at)
			at = (at + 73) % combinations
			if d.Form[row] == Same {
				d.Group[row] = fmt.Sprintf("gang-%d", row)
			}
		}
	}
}

// Sum is the SHA-256 of the demand.
func (d *Demand) Sum() string {
	h := newDigest()
	d.sum(h)
	return h.hex()
}

func (d *Demand) sum(h digest) {
	h.numbers(d.First, d.Form, d.Types, d.Priority, d.Interruption, d.Reclamation)
	h.strings(d.Group)
	h.numbers(d.CPU, d.Memory, d.GPU, d.UnitCPU, d.UnitMemory, d.UnitGPU)
}
