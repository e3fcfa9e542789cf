package proc

import (
	"testing"
)

// failureTailLines is how much of a log a failed test shows.
const failureTailLines = 60

// StartT is Start for tests. It fails t when the program does not start; when t ends it kills the program, and shows
// the end of the log if t failed. An empty LogFile means a file in a temporary directory of t.
func StartT(t testing.TB, c Config) *Process {
	t.Helper()
	if c.LogFile == "" {
		c.LogFile = t.TempDir() + "/" + c.Name + ".log"
	}
	p, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", c.Name, p.Tail(failureTailLines))
		}
	})
	return p
}
