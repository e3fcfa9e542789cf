package sim

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// report prints a failure so that a person can work with it: the rule, what led there, and one command that repeats it.
func report(r Result, f flags, out io.Writer) {
	small := r
	if f.shrink > 0 {
		fmt.Fprintf(out, "making the failure of seed %d smaller, at most %s\n", r.Options.Seed, f.shrink)
		small = Shrink(r, f.shrink)
	}
	o := small.Options
	o.Log = &Timeline{Max: 200_000}
	again, err := Run(o)
	if err != nil || again.Failure == nil {
		fmt.Fprintf(out, "the failure did not come again: %v\n", err)
		again = small
	}
	x := again.Failure
	if x == nil {
		x = r.Failure
	}
	fmt.Fprintf(out, "\n%s\n", o.Log.About(x.Machine, x.Cluster, f.lines))
	fmt.Fprintf(out, "broken: %s\n", x)
	if on := again.On; !on.Empty() {
		fmt.Fprintf(out, "faults that were on: %s\n", on)
	}
	fmt.Fprintf(out, "reproduce: %s\n", Command(small.Options))
}

// Command is the command line that repeats a run, from the directory of the module.
func Command(o Options) string {
	parts := []string{"go run ./internal/sim/cmd/sim", fmt.Sprintf("-first %d", o.Seed)}
	if o.Profile != "" {
		parts = append(parts, "-profile "+o.Profile)
	}
	if !o.Without.Empty() {
		parts = append(parts, "-without "+o.Without.String())
	}
	if o.Clusters > 0 {
		parts = append(parts, fmt.Sprintf("-clusters %d", o.Clusters))
	}
	if o.Machines > 0 {
		parts = append(parts, fmt.Sprintf("-machines %d", o.Machines))
	}
	if o.Faulty > 0 {
		parts = append(parts, fmt.Sprintf("-faulty %s", time.Duration(o.Faulty)))
	}
	if o.Tail > 0 {
		parts = append(parts, fmt.Sprintf("-tail %s", time.Duration(o.Tail)))
	}
	return strings.Join(append(parts, "-shrink 0"), " ")
}

// Shrink looks for a smaller run that breaks the same rule: no tail if it is not needed, kinds of faults switched off one
// by one, fewer clusters, fewer machines, a shorter part with faults.
func Shrink(r Result, budget time.Duration) Result {
	end := time.Now().Add(budget)
	best := r
	try := func(change func(o *Options)) bool {
		if time.Now().After(end) {
			return false
		}
		o := best.Options
		o.Log, o.Replay = nil, o.Replay && best.Failure.Rule == "replay-differs"
		change(&o)
		got, err := Run(o)
		if err != nil || got.Failure == nil || got.Failure.Rule != best.Failure.Rule {
			return false
		}
		best = got
		return true
	}
	for f := range faults { // kinds that were off anyway cost nothing
		if best.On.Has(f) {
			try(func(o *Options) { o.Without = o.Without.With(f) })
		}
	}
	for n := 1; n < best.Clusters; n++ {
		if try(func(o *Options) { o.Clusters = n }) {
			break
		}
	}
	for n := best.Machines / 2; n > 0; n /= 2 {
		if !try(func(o *Options) { o.Machines = n }) {
			break
		}
	}
	for n := best.Machines - 1; n > 0 && try(func(o *Options) { o.Machines = n }); n-- {
	}
	for d := best.Virtual / 2; d > minute; d /= 2 {
		if !try(func(o *Options) { o.Faulty = d / minute * minute }) {
			break
		}
	}
	for f := range faults { // what was needed before may not be any more
		if best.On.Has(f) {
			try(func(o *Options) { o.Without = o.Without.With(f) })
		}
	}
	return best
}
