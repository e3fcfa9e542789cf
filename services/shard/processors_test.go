package shard

import "testing"

// ADR 1002: a machine with few processors runs four goroutines at once, unless a person or the limit of its container says otherwise.
func TestProcessors(t *testing.T) {
	for _, x := range []struct {
		name      string
		seen, now int
		set       string
		want      int
	}{
		{"a small machine", 2, 2, "", 4},
		{"a large machine", 64, 64, "", 64},
		{"a container with a limit of two", 64, 2, "", 2},
		{"a person", 2, 2, "2", 2},
	} {
		if got := processors(x.seen, x.now, x.set); got != x.want {
			t.Errorf("%s: %d goroutines, want %d", x.name, got, x.want)
		}
	}
}
