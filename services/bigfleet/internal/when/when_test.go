package when_test

import (
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/when"
)

// OPS-4.18: a time is what people write; one that cannot be read is refused with the forms that can.
func TestParse(t *testing.T) {
	now := time.Date(2026, 3, 2, 14, 30, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"90m": "2026-03-02T13:00:00Z", "1d": "2026-03-01T14:30:00Z", "1d12h": "2026-03-01T02:30:00Z",
		"14:00": "2026-03-02T14:00:00Z", "14:31": "2026-03-01T14:31:00Z", "09:15:30": "2026-03-02T09:15:30Z",
		"2026-02-28": "2026-02-28T00:00:00Z", "2026-02-28T10:00": "2026-02-28T10:00:00Z", "2026-02-28T10:00:00+02:00": "2026-02-28T08:00:00Z",
	} {
		got, err := when.Parse("from", text, now)
		if err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s is %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0s", "-1h", "d", "1e9d", "25:00", "yesterday", "1200"} {
		if got, err := when.Parse("from", text, now); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// OPS-4.18: "from 14:00 to 15:00" means one hour at any time of the day, and a span over midnight is one.
func TestEndOfASpan(t *testing.T) {
	for _, c := range []struct{ now, from, to, begins, ends string }{
		{"13:30", "14:00", "15:00", "2026-03-01T14:00:00Z", "2026-03-01T15:00:00Z"},
		{"14:30", "14:00", "15:00", "2026-03-02T14:00:00Z", "2026-03-02T15:00:00Z"},
		{"15:30", "14:00", "15:00", "2026-03-02T14:00:00Z", "2026-03-02T15:00:00Z"},
		{"14:30", "23:00", "01:00", "2026-03-01T23:00:00Z", "2026-03-02T01:00:00Z"},
		{"14:30", "2h", "1h", "2026-03-02T12:30:00Z", "2026-03-02T13:30:00Z"},
		{"14:30", "1h", "2h", "2026-03-02T13:30:00Z", "2026-03-02T12:30:00Z"}, // the caller refuses it
	} {
		clock, err := time.Parse("15:04", c.now)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 3, 2, clock.Hour(), clock.Minute(), 0, 0, time.UTC)
		from, err := when.Parse("from", c.from, now)
		if err != nil {
			t.Fatal(err)
		}
		to, err := when.ParseEnd("to", c.to, from, now)
		if err != nil || from.Format(time.RFC3339) != c.begins || to.Format(time.RFC3339) != c.ends {
			t.Errorf("at %s, from %s to %s is %v to %v, %v", c.now, c.from, c.to, from, to, err)
		}
	}
}
