package config

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const (
	leastDuration = time.Millisecond
	mostDuration  = 10 * 365 * 24 * time.Hour
)

var saysZero = regexp.MustCompile(`\b0\b`)

// meant refuses numbers that somebody set and that no setting means: a zero or a negative number that the help does not explain, a
// duration below a millisecond or above ten years, and what is not a number. Else a role would use its default in their place, silently.
func meant(f *pflag.Flag) error {
	if !f.Changed {
		return nil
	}
	text := f.Value.String()
	refuse := func(want string) error { return fmt.Errorf("--%s %s: want %s", f.Name, text, want) }
	var number float64
	switch f.Value.Type() {
	case "duration":
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil // the flag has said so
		}
		if abs := d.Abs(); d != 0 && (abs < leastDuration || abs > mostDuration) {
			return refuse("1ms to ten years")
		}
		number = float64(d)
	case "int", "int32", "int64", "uint32", "uint64", "float64":
		if _, err := fmt.Sscan(text, &number); err != nil {
			return nil
		}
		if math.IsNaN(number) || math.IsInf(number, 0) {
			return refuse("a number")
		}
	default:
		return nil
	}
	switch {
	case number == 0 && !saysZero.MatchString(f.Usage) && !saysZero.MatchString(strings.TrimSuffix(f.DefValue, "s")):
		return refuse("more than 0")
	case number < 0 && !strings.Contains(f.Usage, "negative") && !strings.Contains(f.Usage, "-1"):
		return refuse("no negative value")
	}
	return nil
}
