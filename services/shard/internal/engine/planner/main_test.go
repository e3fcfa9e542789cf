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
// many; a number given with -rapid.checks stands. No worker outlives a plan (ENG-14.7).
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given && !testing.Short() {
		if err := flag.Set("rapid.checks", strconv.Itoa(times(112))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}
