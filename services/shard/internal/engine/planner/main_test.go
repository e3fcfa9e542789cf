package planner_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes each law a thousand cases: so many for each of nine themes. BIGFLEET_ENGINE_LONG=n makes it n times as
// many, and of fresh fleets; without it they are the same in each run, so that what fails is what changed. What is given with
// -rapid.checks and -rapid.seed stands. No worker outlives a plan (ENG-14.7).
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Short() {
		setDefault("rapid.checks", times(112))
	}
	if os.Getenv("BIGFLEET_ENGINE_LONG") == "" {
		setDefault("rapid.seed", 1)
	}
	goleak.VerifyTestMain(m)
}

// setDefault sets a flag that is not given.
func setDefault(name string, to int) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, strconv.Itoa(to)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
