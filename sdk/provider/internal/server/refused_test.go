package server

import (
	"fmt"
	"testing"
	"time"
)

// PROV-2.6: refusals are logged at a bounded rate, whichever caller is refused, and however often.
func TestRefusalsFillNoLog(t *testing.T) {
	var l refusedLog
	now, lines := time.Unix(0, 0), 0
	count := func(key string) {
		if l.due(key, now) {
			lines++
		}
	}
	for range 1000 {
		count("Create")
	}
	if lines != 1 {
		t.Fatalf("%d lines for one cause", lines)
	}
	for i := range 5000 {
		count(fmt.Sprint(i))
	}
	if lines != refusedKeysMax {
		t.Fatalf("%d lines for many causes, want %d", lines, refusedKeysMax)
	}
	now, lines = now.Add(refusedEvery), 0
	for range 1000 {
		count("Create")
	}
	if lines != 1 || len(l.last) > refusedKeysMax {
		t.Fatalf("%d lines later, %d causes remembered", lines, len(l.last))
	}
}
