// Package when reads times as people write them: an age, a time of day, a date, or RFC 3339 (OPS-4.18).
//
// Times without a zone are UTC, as every table prints them.
package when

import (
	"strconv"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// Forms says how a time is written, for help texts.
const Forms = "an age such as 90m or 1d, 14:32, 2006-01-02T14:32 or RFC 3339; UTC"

// Parse reads a time. A time of day that is still to come today was yesterday.
func Parse(flag, text string, now time.Time) (time.Time, error) {
	now = now.UTC()
	if age, ok := Age(text); ok {
		return now.Add(-age), nil
	}
	if t, ok := ofDay(text); ok {
		t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
		if t.After(now) {
			t = t.AddDate(0, 0, -1)
		}
		return t, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, exit.Usagef("--%s %q is not a time: write %s", flag, text, Forms)
}

// ParseEnd reads the end of a span that begins at from, which may be zero. A time of day is the first one after the beginning, also
// when it is still to come: from 14:00 to 15:00, asked at 14:30, is the half hour until now.
func ParseEnd(flag, text string, from, now time.Time) (time.Time, error) {
	t, err := Parse(flag, text, now)
	if _, bare := ofDay(text); err == nil && bare && t.Before(from) {
		t = t.AddDate(0, 0, 1)
	}
	return t, err
}

// ofDay reads a time without a date.
func ofDay(text string) (time.Time, bool) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// Age reads a duration of more than 0, with days.
func Age(text string) (time.Duration, bool) {
	days, rest, found := strings.Cut(text, "d")
	var all time.Duration
	if found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, false
		}
		all, text = time.Duration(n)*24*time.Hour, rest
	}
	if text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return 0, false
		}
		all += d
	}
	return all, all > 0
}
