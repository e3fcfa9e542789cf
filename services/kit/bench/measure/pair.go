package measure

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Floor is the same work at its physical limit. Package probe makes them.
type Floor struct {
	Probe string // P-scan, P-sort, ...
	Parts []Part // run in order; only Run is timed
	Close func() // may be nil
}

// Part is one timed piece of a floor.
type Part struct {
	Prepare func() // may be nil; not timed
	Run     func()
	Times   int // how often Run is run within the timed part; 0 means once
}

// Sum is the floor that does the work of all given floors, one after the other: P-sort + P-claim + 2 P-scan.
func Sum(floors ...Floor) Floor {
	var out Floor
	for _, f := range floors {
		if out.Probe != "" {
			out.Probe += " + "
		}
		out.Probe += f.Probe
		out.Parts = append(out.Parts, f.Parts...)
		if f.Close != nil {
			before := out.Close
			out.Close = func() {
				f.Close()
				if before != nil {
					before()
				}
			}
		}
	}
	return out
}

// Repeat is the floor that does the work of f n times.
func Repeat(n int, f Floor) Floor {
	out := Floor{Probe: fmt.Sprintf("%d %s", n, f.Probe), Close: f.Close}
	for range n {
		out.Parts = append(out.Parts, f.Parts...)
	}
	return out
}

// Pair is one comparison.
type Pair struct {
	Bench string         // B1, as in the table of the benchmarks
	Size  map[string]any // machines, needs, ...: what names this size
	Seed  uint64
	// WorkloadSum is the SHA-256 of the workload.
	WorkloadSum string

	Floor   Floor  // A
	Prepare func() // before each Subject, not timed; may be nil
	Subject func() // B
	// Check is the oracle of what Subject has just done, not timed. Required: a number without a right answer is none.
	Check  func() error
	Oracle string  // what Check compares with
	Target float64 // the ratio that is wanted; 0 means none
	// Bounds, if set, adds absolute limits: it is given the median time of the subject in ns.
	Bounds func(medianNS float64) []Bound
}

func (p Pair) check() error {
	if p.Subject == nil || p.Check == nil || p.Oracle == "" || len(p.Floor.Parts) == 0 || p.Bench == "" {
		return errors.New("measure.Pair: Bench, Floor, Subject, Check and Oracle are required")
	}
	return nil
}

// Options of Run. Zero fields mean the defaults of the programme.
type Options struct {
	WarmUp int // rounds thrown away; 0 means 2
	Rounds int // rounds kept; 0 means 10
}

// Run compares. It returns an error, and no numbers, when an output was wrong.
func Run(p Pair, o Options) (Result, error) {
	if o.WarmUp == 0 {
		o.WarmUp = 2
	}
	if o.Rounds == 0 {
		o.Rounds = 10
	}
	if err := p.check(); err != nil {
		return Result{}, err
	}
	c := &comparison{pair: p}
	for range o.WarmUp {
		if err := c.round(false); err != nil {
			return Result{}, err
		}
	}
	for range o.Rounds {
		if err := c.round(true); err != nil {
			return Result{}, err
		}
	}
	return c.result()
}

// comparison collects rounds.
type comparison struct {
	pair           Pair
	floor, subject []int64 // ns of each run
	ratios         []float64
	allocs, bytes  []float64
	collections    []float64
	dropped        []string
	checks         int
}

// round is A B B A. A round that is not kept is checked like any other.
func (c *comparison) round(keep bool) error {
	var a, b [2]int64
	var used memory
	var err error
	before := machineState()
	a[0] = c.timeFloor()
	for i := range b {
		b[i], used, err = c.timeSubject()
		if err != nil {
			return err
		}
		if keep {
			c.allocs, c.bytes = append(c.allocs, float64(used.mallocs)), append(c.bytes, float64(used.bytes))
			c.collections = append(c.collections, float64(used.collections))
		}
	}
	a[1] = c.timeFloor()
	if !keep {
		return nil
	}
	if fault := before.faultSince(); fault != "" {
		c.dropped = append(c.dropped, fault)
		kept := len(c.allocs) - 2
		c.allocs, c.bytes, c.collections = c.allocs[:kept], c.bytes[:kept], c.collections[:kept]
		return nil
	}
	c.floor, c.subject = append(c.floor, a[:]...), append(c.subject, b[:]...)
	c.ratios = append(c.ratios, float64(b[0]+b[1])/float64(a[0]+a[1]))
	return nil
}

func (c *comparison) timeFloor() int64 {
	var total time.Duration
	for _, part := range c.pair.Floor.Parts {
		if part.Prepare != nil {
			part.Prepare()
		}
		runtime.GC()
		start := time.Now()
		for range max(1, part.Times) {
			part.Run()
		}
		total += time.Since(start)
	}
	return max(1, total.Nanoseconds())
}

func (c *comparison) timeSubject() (int64, memory, error) {
	if c.pair.Prepare != nil {
		c.pair.Prepare()
	}
	runtime.GC()
	before := readMemory()
	start := time.Now()
	c.pair.Subject()
	took := max(1, time.Since(start).Nanoseconds())
	used := readMemory().minus(before)
	c.checks++
	if err := c.pair.Check(); err != nil {
		return 0, memory{}, fmt.Errorf("%s: the answer is wrong, there is no time (oracle %s): %w", c.pair.Bench, c.pair.Oracle, err)
	}
	return took, used, nil
}

// roundsMin is how many rounds make a result.
const roundsMin = 10

func (c *comparison) result() (Result, error) {
	if len(c.ratios) == 0 {
		return Result{}, fmt.Errorf("%s: no round was left: %v", c.pair.Bench, c.dropped)
	}
	low, high := Interval(c.ratios)
	peak, err := c.peak()
	if err != nil {
		return Result{}, err
	}
	out := Result{
		Schema: 1, Bench: c.pair.Bench, Size: c.pair.Size, Seed: c.pair.Seed, WorkloadSum: c.pair.WorkloadSum,
		Time: time.Now().UTC().Truncate(time.Second), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Floor: Series{Probe: c.pair.Floor.Probe, samples: c.floor}, Subject: Series{samples: c.subject},
		Ratio:    Ratio{Median: Median(c.ratios), Low: low, High: high, Rounds: len(c.ratios)},
		Target:   c.pair.Target,
		AllocsOp: int64(Median(c.allocs)), BytesOp: int64(Median(c.bytes)), HeapPeakBytes: peak,
		GCOp:   mean(c.collections),
		Oracle: Oracle{Name: c.pair.Oracle, Checks: c.checks}, Dropped: c.dropped,
	}
	if c.pair.Bounds != nil {
		out.Bounds = c.pair.Bounds(Median(floats(c.subject)))
	}
	out.judge()
	return out, nil
}

// peak runs the subject once more, untimed, while a goroutine watches the heap: the watch would disturb a timed run.
func (c *comparison) peak() (int64, error) {
	if c.pair.Prepare != nil {
		c.pair.Prepare()
	}
	runtime.GC()
	stop, peak := make(chan struct{}), make(chan int64)
	go func() {
		most := heapBytes()
		for {
			select {
			case <-stop:
				peak <- max(most, heapBytes())
				return
			case <-time.After(500 * time.Microsecond):
				most = max(most, heapBytes())
			}
		}
	}()
	c.pair.Subject()
	close(stop)
	most := <-peak
	c.checks++
	if err := c.pair.Check(); err != nil {
		return 0, fmt.Errorf("%s: %w", c.pair.Bench, err)
	}
	return most, nil
}
