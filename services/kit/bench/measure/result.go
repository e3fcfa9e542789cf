package measure

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// Result is one line of a results file.
type Result struct {
	Schema        int            `json:"schema"`
	Bench         string         `json:"bench"`
	Size          map[string]any `json:"size"`
	Commit        string         `json:"commit"`
	Time          time.Time      `json:"time"`
	Seed          uint64         `json:"seed"`
	WorkloadSum   string         `json:"workload_sha256"`
	GOMAXPROCS    int            `json:"gomaxprocs"`
	Machine       Machine        `json:"machine"`
	Floor         Series         `json:"floor"`
	Subject       Series         `json:"subject"`
	Ratio         Ratio          `json:"ratio"`
	Target        float64        `json:"target"`
	Bounds        []Bound        `json:"bounds,omitempty"`
	Met           bool           `json:"met"` // the target and every bound
	AllocsOp      int64          `json:"allocs_op"`
	BytesOp       int64          `json:"bytes_op"`
	HeapPeakBytes int64          `json:"heap_peak_bytes"`
	GCOp          float64        `json:"gc_op"` // collections that began while the subject ran, per run
	Parts         []Piece        `json:"parts,omitempty"`
	Oracle        Oracle         `json:"oracle"`
	Dropped       []string       `json:"dropped"`
}

// Bound is one number with an absolute limit: a time, bytes of memory, a rate, a count. Limit 0 is a number that is
// published without a limit.
type Bound struct {
	Name    string  `json:"name"`
	Unit    string  `json:"unit"` // ns, B, 1/s, ratio, count
	Value   float64 `json:"value"`
	Limit   float64 `json:"limit,omitempty"`
	AtLeast bool    `json:"at_least,omitempty"` // the value must not be below the limit, instead of above
	Met     bool    `json:"met"`
}

// AtMost is a Bound that the value must not exceed.
func AtMost(name, unit string, value, limit float64) Bound {
	return Bound{Name: name, Unit: unit, Value: value, Limit: limit, Met: value <= limit}
}

// NotBelow is a Bound that the value must reach.
func NotBelow(name, unit string, value, limit float64) Bound {
	return Bound{Name: name, Unit: unit, Value: value, Limit: limit, AtLeast: true, Met: value >= limit}
}

// Shown is a number that is published without a limit.
func Shown(name, unit string, value float64) Bound {
	return Bound{Name: name, Unit: unit, Value: value, Met: true}
}

// judge sets Met. A result without rounds has no ratio to judge.
func (r *Result) judge() {
	r.Met = r.Target == 0 || r.Ratio.Rounds == 0 || r.Ratio.Median <= r.Target
	for _, b := range r.Bounds {
		r.Met = r.Met && b.Met
	}
}

// Ratio is the median over rounds and the interval that holds the true one.
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Rounds int     `json:"rounds"`
}

// Oracle is what checked the outputs. A failed check ends the run, so Failed is 0 in every line that exists.
type Oracle struct {
	Name   string `json:"name"`
	Checks int    `json:"checks"`
	Failed int    `json:"failed"`
}

// Series is every sample of one side, in ns.
type Series struct {
	Probe   string
	samples []int64
	kept    seriesJSON // of a series that was written as buckets
}

// NewSeries makes a series of samples, for results that are not pairs: latencies of B6, B9, B11.
func NewSeries(probe string, ns []int64) Series { return Series{Probe: probe, samples: ns} }

// Samples returns all samples.
func (s Series) Samples() []int64 { return s.samples }

// rawMax is how many samples of a series are kept one by one.
const rawMax = 2_000

// seriesJSON is a Series in a file: raw, or buckets of 1 % width with exact quantiles.
type seriesJSON struct {
	Probe   string     `json:"probe,omitempty"`
	NS      []int64    `json:"ns,omitempty"`
	Count   int        `json:"count,omitempty"`
	Buckets [][2]int64 `json:"buckets,omitempty"` // lower bound in ns, count
	P50     float64    `json:"p50,omitempty"`
	P90     float64    `json:"p90,omitempty"`
	P99     float64    `json:"p99,omitempty"`
	Max     float64    `json:"max,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Series) MarshalJSON() ([]byte, error) {
	out := seriesJSON{Probe: s.Probe}
	if len(s.samples) <= rawMax {
		out.NS = s.samples
		return json.Marshal(out)
	}
	all := floats(s.samples)
	out.Count, out.P50, out.P90, out.P99, out.Max = len(all), Quantile(all, 0.5), Quantile(all, 0.9), Quantile(all, 0.99), Quantile(all, 1)
	counts := map[int]int64{}
	low, high := math.MaxInt, math.MinInt
	for _, ns := range s.samples {
		b := bucket(ns)
		counts[b]++
		low, high = min(low, b), max(high, b)
	}
	for b := low; b <= high; b++ {
		if counts[b] > 0 {
			out.Buckets = append(out.Buckets, [2]int64{int64(math.Ceil(math.Pow(1.01, float64(b)))), counts[b]})
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler. A series that was written as buckets comes back without samples.
func (s *Series) UnmarshalJSON(data []byte) error {
	var in seriesJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*s = Series{Probe: in.Probe, samples: in.NS}
	if len(in.NS) == 0 {
		s.kept = in
	}
	return nil
}

// Quantile returns the median, p90, p99 or maximum (q is 0.5, 0.9, 0.99 or 1), also of a series that was read from
// buckets; NaN of an empty one and for other q of buckets.
func (s Series) Quantile(q float64) float64 {
	if s.kept.Count == 0 {
		if q == 0.5 {
			return Median(floats(s.samples))
		}
		return Quantile(floats(s.samples), q)
	}
	switch q {
	case 0.5:
		return s.kept.P50
	case 0.9:
		return s.kept.P90
	case 0.99:
		return s.kept.P99
	case 1:
		return s.kept.Max
	}
	return math.NaN()
}

// Step is one point of a distribution: Share of all samples are not above NS.
type Step struct{ NS, Share float64 }

// Steps returns the distribution of a series in at most the given number of steps. Of a series that was read from buckets each
// step is a lower bound of a bucket.
func (s Series) Steps(most int) []Step {
	var all []Step
	if s.kept.Count > 0 {
		seen := int64(0)
		for _, b := range s.kept.Buckets {
			seen += b[1]
			all = append(all, Step{float64(b[0]), float64(seen) / float64(s.kept.Count)})
		}
	} else {
		for i, ns := range slices.Sorted(slices.Values(s.samples)) {
			all = append(all, Step{float64(ns), float64(i+1) / float64(len(s.samples))})
		}
	}
	if len(all) <= most || most < 2 {
		return all
	}
	out := make([]Step, most)
	for i := range out {
		out[i] = all[i*(len(all)-1)/(most-1)]
	}
	return out
}

func bucket(ns int64) int { return int(math.Floor(math.Log(float64(max(1, ns))) / math.Log(1.01))) }
