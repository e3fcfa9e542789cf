package explain

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
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

// ENG-19.12: the specification lists all of them. `bigfleet explain` is tested by that list.
func TestCodesAreSpecified(t *testing.T) {
	raw, err := os.ReadFile("../../../../../docs/spec/engine.md")
	if err != nil {
		t.Fatal(err)
	}
	_, clause, _ := strings.Cut(string(raw), "**ENG-19.12**")
	names := func(table []code) (out []string) {
		for _, c := range table {
			out = append(out, c.name)
		}
		return out
	}
	var marks []string
	for r := inventory.WithheldReason(1); r < inventory.WithheldReasons; r++ {
		if name := r.String(); name != "" {
			marks = append(marks, name)
		}
	}
	for begin, have := range map[string][]string{"Rejects: ": names(rejectCodes[1:]), "Holders: ": names(standingCodes[:]), "Marks: ": marks} {
		_, text, _ := strings.Cut(clause, begin)
		text, _, _ = strings.Cut(text, ".")
		if want := strings.Split(strings.ReplaceAll(text, "`", ""), ", "); !slices.Equal(have, want) {
			t.Errorf("%s%v are specified, and there are %v", begin, want, have)
		}
	}
}
