package hosts

import (
	"strings"
	"testing"
	"time"
)

// OPS-2.3: a silence that no operator can mean is refused with its name.
func TestSilenceHasBounds(t *testing.T) {
	for silence, good := range map[time.Duration]bool{0: false, time.Second - 1: false, time.Second: true, 24 * time.Hour: true, 24*time.Hour + 1: false} {
		err := (&settings{Silence: silence}).Validate()
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "silence") {
			t.Errorf("%v: %v", silence, err)
		}
	}
}
