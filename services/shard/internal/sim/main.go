package sim

import (
	"flag"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"
)

// flags of the command.
type flags struct {
	seeds, first    uint64
	profile, off    string
	workers         int
	shrink          time.Duration
	trace           bool
	about           string
	lines           int
	coverage        bool
	twice           uint64
	stop            int64
	clusters, fleet int
	faulty, tail    time.Duration
	keep            bool
}

// Main is the command line: exit code 0 when every seed passed, 1 when a rule was broken, 2 when it could not run.
func Main(args []string, out, errs io.Writer) int {
	var f flags
	fs := flag.NewFlagSet("sim", flag.ContinueOnError)
	fs.SetOutput(errs)
	fs.Usage = func() {
		fmt.Fprintf(errs, "sim runs seeded fleets in virtual time over the shard's core and checks its rules.\n\nProfiles:\n%s\nFlags:\n", Profiles())
		fs.PrintDefaults()
	}
	fs.Uint64Var(&f.seeds, "seeds", 1, "how many seeds to run")
	fs.Uint64Var(&f.first, "first", 1, "first seed")
	fs.StringVar(&f.profile, "profile", "mixed", "family of runs")
	fs.StringVar(&f.off, "without", "", "kinds of faults to switch off, joined by commas")
	fs.IntVar(&f.workers, "workers", runtime.GOMAXPROCS(0), "seeds run at a time")
	fs.DurationVar(&f.shrink, "shrink", 20*time.Second, "time for making a failure smaller; 0 turns it off")
	fs.BoolVar(&f.trace, "trace", false, "with one seed: print everything that happens")
	fs.StringVar(&f.about, "about", "", "with -trace: only what concerns this machine or cluster")
	fs.IntVar(&f.lines, "lines", 50, "lines of the timeline of a failure")
	fs.BoolVar(&f.coverage, "coverage", false, "fail when a case that should occur never did, and print the counts")
	fs.Uint64Var(&f.twice, "twice", 50, "run every n-th seed twice and replay its events; 0 turns it off")
	fs.Int64Var(&f.stop, "stop", 0, "stop after so many steps")
	fs.IntVar(&f.clusters, "clusters", 0, "at most so many clusters")
	fs.IntVar(&f.fleet, "machines", 0, "at most so many machines")
	fs.DurationVar(&f.faulty, "faulty", 0, "length of the part with faults")
	fs.DurationVar(&f.tail, "tail", 0, "length of the tail without faults; below 0: none")
	fs.BoolVar(&f.keep, "keep-going", false, "run all seeds even when one fails")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	off, err := ParseFaults(f.off)
	if err == nil {
		_, err = profileNamed(f.profile)
	}
	if err != nil {
		fmt.Fprintln(errs, err)
		return 2
	}
	o := Options{Seed: f.first, Profile: f.profile, Without: off, Clusters: f.clusters, Machines: f.fleet, Faulty: int64(f.faulty), Tail: int64(f.tail), StopAfter: f.stop}
	if f.trace {
		return traceOne(o, f, out)
	}
	return runSet(o, f, out, errs)
}

// traceOne prints one run.
func traceOne(o Options, f flags, out io.Writer) int {
	o.Log = &Timeline{}
	r, err := Run(o)
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	for _, l := range o.Log.Lines {
		if l.Dull {
			continue
		}
		if f.about == "" || l.Machine == f.about || l.Cluster == f.about || l.Machine == "" && l.Cluster == "" || strings.Contains(l.Text, f.about) {
			fmt.Fprintf(out, "%s  step %-6d %s\n", clock(l.At), l.Step, l.Text)
		}
	}
	fmt.Fprintf(out, "kinds of faults that were on: %s\n", r.On)
	return conclude(out, []Result{r}, o, time.Duration(0))
}

// runSet runs a row of seeds on all cores and prints exactly one summary line last.
func runSet(o Options, f flags, out, errs io.Writer) int {
	start := time.Now()
	var mu sync.Mutex
	var total Tally
	var failed []Result
	var done, virtual, machineTime uint64
	next, stop := f.first, false
	lastWord := start
	var wg sync.WaitGroup
	for range max(1, f.workers) {
		wg.Go(func() {
			for {
				mu.Lock()
				if stop || next >= f.first+f.seeds {
					mu.Unlock()
					return
				}
				seed := next
				next++
				mu.Unlock()
				r := runSeed(o, seed, f.twice)
				mu.Lock()
				done++
				virtual += uint64(r.Virtual)
				machineTime += uint64(r.Virtual/second) * uint64(r.Machines)
				total.Add(r.Tally)
				if r.Failure != nil {
					failed = append(failed, r)
					fmt.Fprintf(errs, "seed %d: %s\n", seed, r.Failure)
					if !f.keep && len(failed) >= 1 {
						stop = true
					}
				}
				if now := time.Now(); now.Sub(lastWord) > 5*time.Second {
					lastWord = now
					fmt.Fprintf(errs, "%d of %d seeds, %d failed, %.1f fleet-days, %s\n", done, f.seeds, len(failed), float64(virtual)/float64(24*hour), now.Sub(start).Round(time.Second))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	code := 0
	if len(failed) > 0 {
		code = 1
		report(failed[0], f, errs)
	}
	if f.coverage {
		if never := total.Never(o); len(never) > 0 {
			fmt.Fprintf(errs, "never occurred: %s\n", strings.Join(never, ", "))
			code = max(code, 1)
		}
		total.Print(errs)
	}
	fmt.Fprintf(out, "%d passed, %d failed (seeds %d-%d, profile %s, %.1f fleet-days, %.0f s)\n", done-uint64(len(failed)), len(failed), f.first, f.first+f.seeds-1,
		f.profile, float64(virtual)/float64(24*hour), time.Since(start).Seconds())
	return code
}

// runSeed runs a seed, now and then twice with a replay of its events (SHARD-33.7).
func runSeed(o Options, seed, twice uint64) Result {
	o.Seed = seed
	o.Replay = twice > 0 && seed%twice == 0
	r, err := Run(o)
	if err != nil {
		panic(err) // the options were checked
	}
	if o.Replay && r.Failure == nil {
		again, _ := Run(o)
		if again.Digest != r.Digest || again.Steps != r.Steps {
			r.Failure = &Failure{Rule: "not-deterministic", Clause: "SHARD-33.7", Step: r.Steps, At: r.Virtual, Text: fmt.Sprintf("digest %016x, then %016x", r.Digest, again.Digest)}
		}
	}
	return r
}

func conclude(out io.Writer, list []Result, o Options, took time.Duration) int {
	bad := 0
	virtual := int64(0)
	for _, r := range list {
		virtual += r.Virtual
		if r.Failure != nil {
			bad++
			fmt.Fprintf(out, "seed %d: %s\n", r.Options.Seed, r.Failure)
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed (seeds %d-%d, profile %s, %.1f fleet-days, %.0f s)\n", len(list)-bad, bad, o.Seed, o.Seed, o.Profile, float64(virtual)/float64(24*hour), took.Seconds())
	if bad > 0 {
		return 1
	}
	return 0
}
