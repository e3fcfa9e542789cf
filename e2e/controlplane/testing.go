package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// LogsEnv names the environment variable with a directory to which StartT copies all logs of a failed test. CI sets
// it to a directory it keeps.
const LogsEnv = "BIGFLEET_E2E_LOGS"

// failureTailLines is how much of each log a failed test prints.
const failureTailLines = 40

// StartT is Start for tests: it fails t when the control plane does not start and stops it when t ends. When t failed,
// the end of each component's log is printed, and the whole logs are kept if LogsEnv says where.
func StartT(t testing.TB, c Config) *ControlPlane {
	t.Helper()
	return StartAllT(t, c)[0]
}

// StartAllT is StartAll for tests, as StartT is Start.
func StartAllT(t testing.TB, configs ...Config) []*ControlPlane {
	t.Helper()
	all, err := StartAll(t.Context(), configs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, cp := range all {
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(cp.Logs(failureTailLines))
				cp.keepLogs(t)
			}
			if err := cp.Stop(); err != nil {
				t.Errorf("stop control plane %q: %v", cp.Name(), err)
			}
		})
	}
	return all
}

// Logs returns the last lines of each component's log.
func (cp *ControlPlane) Logs(lines int) string {
	var all strings.Builder
	for _, c := range Components() {
		p := cp.processes[c]
		if p == nil {
			continue
		}
		state := "running"
		if !p.Running() {
			state = "not running"
		}
		fmt.Fprintf(&all, "=== %s: %s (%s)\n%s\n", cp.Name(), c, state, proc.Tail(p.LogFile(), lines))
	}
	return all.String()
}

func (cp *ControlPlane) keepLogs(t testing.TB) {
	keep := os.Getenv(LogsEnv)
	if keep == "" {
		return
	}
	target := filepath.Join(keep, strings.ReplaceAll(t.Name(), "/", "_"), cp.Name())
	if err := os.RemoveAll(target); err != nil { // of an earlier run; CopyFS does not overwrite
		t.Log(err)
	}
	if err := os.CopyFS(target, os.DirFS(cp.LogDir())); err != nil {
		t.Logf("keeping the logs: %v", err)
		return
	}
	t.Logf("the whole logs of control plane %q are in %s", cp.Name(), target)
}
