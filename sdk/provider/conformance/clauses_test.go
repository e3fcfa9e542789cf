package conformance

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// PROV-29.2: every (M) clause of sections 2 to 14 has a behaviour, or stands on the list of what nobody can see from
// outside, with the reason; names are stable, unique and well formed.
func TestEveryClauseIsJudged(t *testing.T) {
	text, err := os.ReadFile("../../../docs/spec/provider.md")
	if err != nil {
		t.Fatal(err)
	}
	cited, names := map[string]bool{}, map[string]bool{}
	wellFormed := regexp.MustCompile(`^(life|args|fence|once|race|meta|field|list|fail|ready|last|loss|size|who|walk)/[a-z0-9-]+$`)
	for _, b := range behaviours() {
		if names[b.name] || !wellFormed.MatchString(b.name) {
			t.Errorf("name %q is taken or not area/what", b.name)
		}
		names[b.name] = true
		if b.says == "" || strings.HasSuffix(b.says, ".") || len(b.clauses) == 0 || b.profile == "" || b.do == nil {
			t.Errorf("%s is not whole", b.name)
		}
		for _, c := range b.clauses {
			cited[c] = true
		}
	}
	clauses := regexp.MustCompile(`(?m)^- \*\*(PROV-(\d+)\.\d+)\*\* \((M|B)\)`).FindAllStringSubmatch(string(text), -1)
	known := map[string]bool{}
	for _, m := range clauses {
		known[m[1]] = true
		section := m[2]
		if m[3] != "M" || !slices.Contains([]string{"2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14"}, section) {
			continue
		}
		if why := unseen()[m[1]]; !cited[m[1]] && why == "" {
			t.Errorf("%s is judged by no behaviour and is not on the list of clauses that cannot be seen", m[1])
		}
	}
	if len(known) < 200 {
		t.Fatalf("%d clauses found in the specification", len(known))
	}
	for c := range cited {
		if !known[c] {
			t.Errorf("%s is cited and is not in the specification", c)
		}
	}
	for c := range unseen() {
		if !known[c] {
			t.Errorf("%s is excused and is not in the specification", c)
		}
	}
}
