package when_test

import (
	"fmt"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/when"
)

// Over midnight: asked at noon, from 23:00 to 01:00 is the last night.
func ExampleParseEnd() {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	from, _ := when.Parse("from", "23:00", noon)
	to, _ := when.ParseEnd("to", "01:00", from, noon)
	fmt.Println(to.Sub(from), to.Format(time.RFC3339))
	// Output: 2h0m0s 2026-03-02T01:00:00Z
}
