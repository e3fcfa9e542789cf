package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// OPS-4.3: one object per change. A time of day that a shard computed again is none, and neither is a note that was made before.
func TestWatchTellsOnlyChanges(t *testing.T) {
	for _, c := range []struct {
		name         string
		format       output.Format
		before, now  picture
		data, notice string
	}{
		{"jsonl", output.JSONL, picture{data: "{\"a\":1}\n{\"b\":1}\n"}, picture{data: "{\"a\":1}\n{\"b\":2}\n"}, "{\"b\":2}\n", ""},
		{"jitter", output.JSONL, picture{data: "{\"atUnixNanos\":\"1795392364907552348\"}\n"}, picture{data: "{\"atUnixNanos\":\"1795392364907552338\"}\n"}, "", ""},
		{"later", output.JSONL, picture{data: "{\"atUnixNanos\":\"1795392364907552348\"}\n"}, picture{data: "{\"atUnixNanos\":\"1795392365907552348\"}\n"}, "{\"atUnixNanos\":\"1795392365907552348\"}\n", ""},
		{"table", output.Table, picture{data: "NAME\n"}, picture{data: "NAME\n"}, "", ""},
		{"notes", output.Table, picture{notes: "no drains\n"}, picture{notes: "no drains\n"}, "", ""},
		{"new note", output.Table, picture{notes: "no drains\n"}, picture{notes: "shard-0 is away\n"}, "", "shard-0 is away\n"},
	} {
		var out, errs bytes.Buffer
		a := &App{Env: env.Env{Out: &out, Err: &errs}, Format: c.format}
		if err := a.repaint(c.now, c.before); err != nil || out.String() != c.data || errs.String() != c.notice {
			t.Errorf("%s: %v, stdout %q, stderr %q; want %q and %q", c.name, err, out.String(), errs.String(), c.data, c.notice)
		}
	}
}

// A picture that is larger than the terminal is cut, and says so: it would scroll itself away.
func TestWatchFitsTheTerminal(t *testing.T) {
	var out bytes.Buffer
	a := &App{Env: env.Env{Out: &out, Err: &bytes.Buffer{}, Terminal: true, Screen: func() (int, int) { return 20, 10 }}, Format: output.Table}
	if err := a.repaint(picture{data: strings.Repeat("a line of  the table that is long\n", 50)}, picture{}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 8 || !strings.HasPrefix(lines[7], "… 43 more lines") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	for _, l := range lines {
		if n := len([]rune(strings.TrimPrefix(l, "\x1b[H\x1b[2J"))); n > 20 {
			t.Errorf("%q has %d columns", l, n)
		}
	}
}
