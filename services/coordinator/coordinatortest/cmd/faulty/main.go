// Command faulty is bigfleet-coordinator on a machine with a slow disk and a wrong clock. Files in the directory of
// BIGFLEET_FAULTS say how slow and how wrong, as Go durations, and may change at any moment: "sync" is waited before each
// fsync of the log and of votes, "clock" is added to the time that its records carry. It is for tests only.
package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
)

// fault reads one file; a missing one is not a fault.
func fault(name string) time.Duration {
	text, err := os.ReadFile(filepath.Join(os.Getenv("BIGFLEET_FAULTS"), name))
	if err != nil {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return 0 // half written
	}
	return d
}

func main() {
	os.Exit(process.Execute(coordinator.NewCommand(func(c *coordinator.Config) {
		c.Clock = func() time.Time { return time.Now().Add(fault("clock")) }
		c.BeforeSync = func() { time.Sleep(fault("sync")) }
	}), os.Args[1:]))
}
