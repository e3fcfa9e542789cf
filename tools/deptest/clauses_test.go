package deptest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// A clause has one number, so that a citation names one rule.
func TestClausesAreDefinedOnce(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("..", "..", "docs", "spec", "*.md"))
	if err != nil || len(names) < 7 {
		t.Fatalf("%d specifications: %v", len(names), err)
	}
	clause := regexp.MustCompile(`(?m)^- \*\*((?:WIRE|ENG|SHARD|PROV|COORD|OP|OPS)-[A-Z]?[0-9.]+[a-z]?)\*\*`)
	seen := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range clause.FindAllStringSubmatch(string(text), -1) {
			if before, again := seen[m[1]]; again {
				t.Errorf("%s: %s is defined again (first in %s): give the new clause the next free number", name, m[1], before)
			}
			seen[m[1]] = name
		}
	}
	if len(seen) < 500 {
		t.Fatalf("only %d clauses were found", len(seen))
	}
}
