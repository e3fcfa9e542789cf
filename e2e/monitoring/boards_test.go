package monitoring_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/monitoring"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// boards are the dashboards of everything but providers, and the variables that Grafana fills in.
var boards = [][]string{
	{"deploy", "monitoring", "fleet-dashboard.json"},
	{"deploy", "monitoring", "shard-dashboard.json"},
	{"deploy", "monitoring", "coordinator-dashboard.json"},
	{"deploy", "monitoring", "slo-dashboard.json"},
	{"deploy", "charts", "bigfleet-operator", "files", "cluster-edge.json"},
}

// lived is a day in which everything happens once that a panel shows: machines are bought, taken for a higher priority through
// evictions, and interrupted.
const lived = `deploy red train 12 gpu=1
deploy green web 16 type=m.8x
wait red train 12
wait green web 16
deploy blue urgent 2 gpu=1 priority=1000
wait blue urgent 2
storm 1s
rest
`

// played starts `bigfleet up` with a story, and returns when the story has ended; scrape reads the metrics of every process.
func played(t *testing.T, story string) (scrape func(*monitoring.Series, time.Time)) {
	t.Helper()
	ports, err := loopback.ReserveN(6)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "story")
	if err := os.WriteFile(script, []byte(story), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"up", "--script", script, "--data-dir", dir, "--log-file", filepath.Join(dir, "parts.log")}
	for i, flag := range []string{"--shard-listen", "--provider-listen", "--control-listen", "--coordinator-listen", "--raft-bind", "--demo-listen"} {
		t.Cleanup(ports[i].Release)
		args = append(args, flag, ports[i].Addr())
	}
	log := filepath.Join(dir, "up.log")
	proc.StartT(t, proc.Config{Name: "up", Path: proc.BuildT(t, "services/bigfleet"), Args: args, LogFile: log, Ready: proc.LogContains("ready: shard at")})
	scrape = func(s *monitoring.Series, at time.Time) {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(dir, "metrics.json"))
		if err != nil {
			t.Fatal(err)
		}
		var groups []struct {
			Targets []string
			Labels  map[string]string
		}
		if err := json.Unmarshal(raw, &groups); err != nil || len(groups) < 9 {
			t.Fatalf("%v: %s", err, raw)
		}
		for _, g := range groups {
			if err := s.ScrapeTarget(bytes.NewReader(get(t, "http://"+g.Targets[0]+"/metrics")), at, g.Labels["job"], g.Targets[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("scenario complete")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the story never ends:\n%s", text)
		}
	}
	return scrape
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, answer.Status, err)
	}
	return text
}

// OPS-9.4: every query of every dashboard has an answer from a fleet that did its work; what it names exists; each panel has a
// sentence and the page of the runbook that says what to do, which exists.
func TestDashboardsHaveData(t *testing.T) {
	var series monitoring.Series
	scrape := played(t, lived)
	for _, at := range []time.Duration{time.Minute, 2 * time.Minute} { // twice: a counter needs two samples to have a rate
		scrape(&series, monitoring.Start.Add(at))
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	runbook, err := os.ReadFile(deployed(t, "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	engine := monitoring.Engine()
	var uids []string
	for _, file := range boards {
		board, err := monitoring.ReadDashboard(deployed(t, file...))
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(uids, board.UID) || board.Title == "" {
			t.Errorf("%v: uid %q, title %q", file, board.UID, board.Title)
		}
		uids = append(uids, board.UID)
		for _, p := range board.Panels {
			if !strings.HasSuffix(p.Description, ".") || len(p.Targets) == 0 || !pageExists(p, string(runbook)) {
				t.Errorf("%s, %s: a panel needs a sentence, a query and a page of the runbook", board.Title, p.Title)
			}
			for _, target := range p.Targets {
				expr := strings.NewReplacer("$shard", ".*", "$replica", ".*").Replace(target.Expr)
				if alone(expr) {
					continue
				}
				exposed(t, board.Title+", "+p.Title, expr, &series)
				found, err := monitoring.Ask(t.Context(), engine, &series, expr, monitoring.Start.Add(2*time.Minute))
				if err != nil || len(found) == 0 {
					t.Errorf("%s, %s has no data: %s: %v", board.Title, p.Title, expr, err)
				}
			}
		}
	}
}

// alone are queries that have no answer where the coordinator is one replica, or nothing is wrong. Their metrics are in the tables of
// COORD-18.2 and SHARD-29.1, which the tests of coordinator and shard hold against the code.
func alone(expr string) bool {
	return strings.Contains(expr, "bigfleet_coordinator_peer_last_contact_seconds") || strings.Contains(expr, "bigfleet_shard_rollup_quarantined")
}

func pageExists(p monitoring.Panel, runbook string) bool {
	for _, l := range p.Links {
		_, page, ok := strings.Cut(l.URL, "docs/runbook.md")
		if !ok || page != "" && !strings.Contains(strings.ToLower(runbook), "\n## "+strings.TrimPrefix(page, "#")+"\n") {
			return false
		}
	}
	return len(p.Links) > 0
}
