package match

import (
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// metByNoneMost is how many requirements a sentence names.
const metByNoneMost = 3

// MetByNone is a sentence that names the requirements of a form that no machine meets, whatever else it has, after a space; "" if each is met by some.
func MetByNone(inv *inventory.Table, f *demand.Form) string {
	var out []string
	for i := range f.Requirements {
		q := f.Requirements[i : i+1]
		if len(out) < metByNoneMost && !metByAny(inv, NewMatcher(&demand.Form{Profile: demand.Profile{Requirements: q}}, inv)) {
			out = append(out, q[0].Text())
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " No machine has " + strings.Join(out, ", or ") + "."
}

func metByAny(inv *inventory.Table, m *Matcher) bool {
	for id := range uint32(inv.Classes()) {
		if inv.Class(id).Serial != 0 && m.Matches(inv, id) {
			return true
		}
	}
	return false
}
