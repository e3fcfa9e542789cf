package engine

import "testing"

// ENG-19.10: every code has a name and a sentence of its own.
func TestCodesHaveSentences(t *testing.T) {
	for name, table := range map[string][]code{"details": detailCodes[1:], "causes": causeCodes[1:], "keep reasons": keepCodes[1:],
		"reasons": reasonCodes[1:]} {
		names := map[string]bool{}
		for _, c := range table {
			if c == (code{}) {
				continue // a number of the shell
			}
			if c.name == "" || c.say == "" || names[c.name] {
				t.Errorf("%s: %+v", name, c)
			}
			names[c.name] = true
		}
	}
}

// ENG-19.4, ENG-19.6: numbers above those of a table are the shell's, and so are the gaps in it.
func TestNumbersOfTheShellHaveNoCode(t *testing.T) {
	for d := Detail(21); d <= 28; d++ {
		if d.Planned() || d.String() != "UNKNOWN" || d.Sentence() != "" || d.Remedy() != "" {
			t.Errorf("detail %d is the shell's, and reads %q: %s", d, d, d.Sentence())
		}
	}
	if !NoDetail.Planned() || !DetailSpreadIgnored.Planned() {
		t.Error("a detail of the engine is not planned")
	}
	for k := KeepReason(15); k <= 23; k++ {
		if k.String() != "UNKNOWN" || k.Sentence() != "" || k.Change() != "" {
			t.Errorf("keep reason %d is the shell's, and reads %q: %s", k, k, k.Sentence())
		}
	}
}
