package provider

import (
	"testing"
	"time"
)

// PROV-18.3, 11.11: each slot comes back after a pause of its own. The pause doubles per repeat and offering, up to an hour,
// and a launch or a quiet time ends the row. Slots that continue failing do not keep the earlier ones out.
func TestStockoutPauses(t *testing.T) {
	const base = 5 * time.Minute
	begin := time.Unix(1_000_000, 0)
	at := func(m float64) time.Time { return begin.Add(time.Duration(m * float64(time.Minute))) }
	var s stockouts
	back := func(machine string, failed, want float64) {
		t.Helper()
		before, there := s.over(machine, "o", at(failed), base, at(want-0.01)), s.over(machine, "o", at(failed), base, at(want))
		if before || !there {
			t.Errorf("%s failed at minute %v: back before minute %v %v, at it %v", machine, failed, want, before, there)
		}
	}
	back("a", 0, 5)
	back("b", 1, 6)
	back("c", 4.9, 9.9)
	back("a2", 5.5, 15.5) // a repeat: twice the pause
	back("b2", 6, 16)
	back("a", 0, 5) // what was said stays
	back("a3", 16, 36)
	back("a4", 37, 77)
	back("a5", 78, 138) // an hour at most
	back("a6", 139, 199)
	back("a7", 300, 305) // after a quiet time it begins again
	back("a8", 306, 316)
	s.launched("o")
	back("a9", 317, 322)
	s.forget("a9")
	back("a9", 400, 405)
	if !s.over("other", "p", at(0), base, at(5)) {
		t.Error("offerings have rows of their own")
	}
}
