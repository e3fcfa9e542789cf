package coordinator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// record prints the gaps in accepted writes and appends them to the record.
func record(t *testing.T, what string, gaps []time.Duration, writes int) {
	t.Helper()
	var ms []float64
	for _, g := range gaps {
		ms = append(ms, float64(g.Microseconds())/1000)
	}
	p50, p99 := measure.Quantile(ms, 0.5), measure.Quantile(ms, 0.99)
	t.Logf("%s: %d times, %d writes acknowledged; no write accepted for: p50 %.0f ms, p99 %.0f ms", what, len(gaps), writes, p50, p99)
	appendLine(t, map[string]any{"bench": "B11/" + what, "times": len(gaps), "writes": writes, "gap_ms_p50": p50, "gap_ms_p99": p99, "gap_ms": ms})
}

// appendLine appends one JSON line with the moment and the machine to the file that BIGFLEET_COORDINATOR_RECORD names.
func appendLine(t *testing.T, line map[string]any) {
	t.Helper()
	path := os.Getenv("BIGFLEET_COORDINATOR_RECORD")
	if path == "" {
		return
	}
	line["at"], line["machine"] = time.Now().UTC().Format(time.RFC3339), measure.ThisMachine()
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(text, '\n')); err != nil {
		t.Fatal(err)
	}
}

// recordScale appends the figures of 4,000 shards.
func recordScale(t *testing.T, registered time.Duration, entries int, steady []float64, memory int64) {
	t.Helper()
	appendLine(t, map[string]any{"bench": "B11/4000-shards", "registered_ms": registered.Milliseconds(), "log_entries": entries, "reports": len(steady),
		"report_ms_p50": measure.Quantile(steady, 0.5), "report_ms_p99": measure.Quantile(steady, 0.99), "leader_resident_bytes": memory})
}
