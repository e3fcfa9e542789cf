package engine

import "testing"

// ENG-19.10: every code has a name and a sentence of its own.
func TestCodesHaveSentences(t *testing.T) {
	for name, table := range map[string][]code{"details": detailCodes[1:], "causes": causeCodes[1:], "keep reasons": keepCodes[1:],
		"reasons": reasonCodes[1:]} {
		names := map[string]bool{}
		for _, c := range table {
			if c.name == "" || c.say == "" || names[c.name] {
				t.Errorf("%s: %+v", name, c)
			}
			names[c.name] = true
		}
	}
}
