// Command benchrun runs the benchmark programme: `make bench` and `make bench-ci`.
//
//	benchrun                        everything, recorded in docs/benchmarks/results; refuses a dirty tree
//	benchrun -only B1,B8            some of it
//	benchrun -nightly               the parts that take long as well
//	benchrun -ci                    a tenth of each size on two processors, compared with gates.yaml; records nothing
//	benchrun -calibrate 6           the short run six times: the mean and deviation of each number, for gates.yaml
//
// Programs are built before the first one runs, so that no compiler works beside a measurement. What fails a gate is run
// once more with twice the rounds; what fails again fails the run. Exit 0: done; 1: a benchmark or a gate failed; 2: could not.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/bigfleet-dev/bigfleet/e2e/bench"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

func main() { os.Exit(run()) }

type settings struct {
	ci, nightly bool
	calibrate   int
	rounds      int
	only        []string
	results     string
	gates       string
}

func run() int {
	var s settings
	only := flag.String("only", "", "run these benchmarks alone, such as B1,B6")
	flag.BoolVar(&s.ci, "ci", false, "a tenth of each size, compared with the gates; records nothing")
	flag.BoolVar(&s.nightly, "nightly", false, "the parts that take long as well")
	flag.IntVar(&s.calibrate, "calibrate", 0, "run the short run this often and print means and deviations")
	flag.IntVar(&s.rounds, "rounds", 12, "rounds of each comparison, two of which are warm-up")
	flag.StringVar(&s.results, "results", "", "directory of the record; empty is docs/benchmarks/results of this repository")
	flag.StringVar(&s.gates, "gates", "", "empty is e2e/bench/gates.yaml of this repository")
	flag.Parse()
	if *only != "" {
		s.only = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root, err := proc.Root()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchrun:", err)
		return 2
	}
	ok, err := start(ctx, root, s)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchrun:", err)
		return 2
	case !ok:
		return 1
	}
	return 0
}

func start(ctx context.Context, root string, s settings) (bool, error) {
	parts := bench.Select(bench.Suite(), s.only)
	if len(parts) == 0 {
		return false, fmt.Errorf("no benchmark is called %s", strings.Join(s.only, " or "))
	}
	switch {
	case s.calibrate > 0:
		return calibrate(ctx, root, s, parts)
	case s.ci:
		return check(ctx, root, s, parts)
	}
	return record(ctx, root, s, parts)
}
