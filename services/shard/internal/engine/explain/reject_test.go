package explain

import (
	"testing"
)

// ENG-19.10: every reason of an explanation has a name and a sentence of its own.
func TestExplanationCodesHaveSentences(t *testing.T) {
	for name, table := range map[string][]code{"rejects": rejectCodes[:], "standings": standingCodes[:]} {
		names := map[string]bool{}
		for _, c := range table {
			if c.name == "" || c.say == "" || names[c.name] {
				t.Errorf("%s: %+v", name, c)
			}
			names[c.name] = true
		}
	}
}
