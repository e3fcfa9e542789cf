package coordinator_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/archive"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
)

// Every command of the operators' guide, in its order. A program runs until the next one takes its place; what curl asks
// must be answered.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/coordinator.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 4 {
		t.Fatalf("the guide has %d commands", len(blocks))
	}
	dir := t.TempDir()
	replace := []string{"./coord-data", filepath.Join(dir, "data"), "./exports", filepath.Join(dir, "exports"), "5m", "100ms"}
	for _, port := range []string{"127.0.0.1:7790", "127.0.0.1:7791", "127.0.0.1:8790"} {
		replace = append(replace, port, loopback.Addr(t))
	}
	stop := func() {}
	defer func() { stop() }()
	for _, b := range blocks {
		line := strings.NewReplacer(replace...).Replace(strings.TrimSpace(b[1]))
		program, rest, _ := strings.Cut(line, " ")
		switch program {
		case "bigfleet-coordinator":
			stop()
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			args := append(strings.Fields(rest), "--log-level", "error")
			go func() { done <- process.ExecuteContext(ctx, coordinator.NewCommand(), args) }()
			stop = func() {
				cancel()
				if err := <-done; err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
		case "curl":
			var out []byte
			eventually(t, line, func() bool {
				var err error
				out, err = exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "curl -s", "curl -sf", 1)).Output()
				return err == nil
			})
			if !bytes.HasPrefix(out, []byte("{")) && !bytes.Contains(out, []byte("ok")) {
				t.Errorf("%s: %s", line, out)
			}
		default:
			t.Errorf("the test cannot run %q", line)
		}
	}
	eventually(t, "the export of the guide", func() bool {
		_, err := archive.Read(filepath.Join(dir, "exports", "latest"))
		return err == nil
	})
}

// COORD-17.1, OPS-2.3, 2.5: every flag of the specification exists, and everything that is wrong is said at once, with
// exit code 2.
func TestFlags(t *testing.T) {
	cmd := coordinator.NewCommand()
	for _, name := range []string{"listen", "metrics-addr", "raft-bind", "raft-advertise", "id", "data-dir", "bootstrap", "bootstrap-expect", "force-bootstrap", "peers",
		"join-addr", "snapshot-export-dir", "snapshot-export-interval", "snapshot-export-keep", "rebalance-interval", "audit-log", "tls-cert", "tls-key", "tls-ca",
		"require-tls", "raft-heartbeat-timeout", "raft-election-timeout", "raft-leader-lease", "feature-level-max", "dead-peer-after", "raft-tls", "join-accept-admin"} {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("--%s does not exist", name)
		}
	}
	err := process.ExecuteContext(t.Context(), cmd, []string{"--id", "not an id", "--bootstrap-expect", "2", "--raft-leader-lease", "5s", "--raft-tls", "perhaps", "--feature-level-max", "99", "--tls-cert", "alone.crt"})
	if process.ExitCode(err) != process.ExitUsage {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"--id", "--bootstrap-expect", "timings", "--raft-tls", "--feature-level-max", "--tls"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %s in: %v", want, err)
		}
	}
}
