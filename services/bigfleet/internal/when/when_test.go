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
