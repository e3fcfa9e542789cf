package deptest

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/engine.md leads from each section of the engine's specification to files that exist, in the order of the sections.
func TestEngineMapIsComplete(t *testing.T) {
	p := pointers(t)
	_, table, found := strings.Cut(read(t, "docs/engine.md"), "\n## From a rule to its file\n")
	if !found {
		t.Fatal("docs/engine.md has no map")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| \[([0-9]+\. [^\]]+)\]\(spec/engine\.md#[^)]+\) \|.*$`).FindAllStringSubmatch(table, -1)
	sections := regexp.MustCompile(`(?m)^## ([0-9]+\. .*)$`).FindAllStringSubmatch(read(t, "docs/spec/engine.md"), -1)
	if len(rows) != len(sections) || len(sections) < 20 {
		t.Errorf("the map has %d sections, the specification %d", len(rows), len(sections))
	}
	for i := range min(len(rows), len(sections)) {
		if rows[i][1] != strings.ReplaceAll(sections[i][1], "`", "") {
			t.Errorf("the map has %q where the specification has %q", rows[i][1], sections[i][1])
		}
		files := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.TrimPrefix(rows[i][0], "| ["+rows[i][1]), -1)
		if len(files) == 0 {
			t.Errorf("%s leads to no file", rows[i][1])
		}
		for _, f := range files {
			if !p.exists["services/shard/internal/"+f[1]] && !p.exists[f[1]] {
				t.Errorf("%s leads to %s, which does not exist", rows[i][1], f[1])
			}
		}
	}
}

// docs/clauses.md leads from each section of the other specifications to code that exists. Sections without code say what was asked of others.
func TestClauseMapIsComplete(t *testing.T) {
	p := pointers(t)
	page := read(t, "docs/clauses.md")
	bases := map[string]string{"shard": "services/shard/", "coordinator": "services/coordinator/"}
	clauses := map[string]string{"shard": "SHARD", "provider": "PROV", "coordinator": "COORD", "operator": "OP", "operations": "OPS"}
	for spec, without := range map[string]string{"shard": "", "provider": "", "coordinator": "20", "operator": "20", "operations": "15"} {
		_, table, found := strings.Cut(page, "(spec/"+spec+".md) | Code |\n|---|---|\n")
		if !found {
			t.Fatalf("docs/clauses.md has no table of spec/%s.md", spec)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		known := map[string]bool{without: true}
		for row := range strings.Lines(table) {
			cells := strings.SplitN(row, "|", 3)
			numbers := regexp.MustCompile(`^ ((?:\d+, )*\d+) `).FindStringSubmatch(cells[1])
			if numbers == nil {
				t.Errorf("a row without sections: %s", row)
				continue
			}
			paths := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1)
			if len(paths) == 0 {
				t.Errorf("section %s leads to no code", numbers[1])
			}
			for _, f := range paths {
				if !p.exists[f[1]] && !p.exists[bases[spec]+f[1]] {
					t.Errorf("section %s of %s leads to %s, which does not exist", numbers[1], spec, f[1])
				}
			}
			for _, n := range strings.Split(numbers[1], ", ") {
				known[n] = true
				rules := strings.Contains(read(t, "docs/spec/"+spec+".md"), "- **"+clauses[spec]+"-"+n+".") && !ofTheWhole[clauses[spec]+"-"+n]
				if rules && !cited(t, clauses[spec], n, paths, bases[spec]) {
					t.Errorf("no file that section %s of %s leads to cites %s-%s: it is not where the section's rules are", n, spec, clauses[spec], n)
				}
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^## (\d+)\. `).FindAllStringSubmatch(read(t, "docs/spec/"+spec+".md"), -1) {
			if !known[m[1]] {
				t.Errorf("docs/clauses.md says nothing of section %s of spec/%s.md", m[1], spec)
			}
		}
	}
}

// ofTheWhole are sections whose clauses are about all tests and all pages, so that no single place cites them.
var ofTheWhole = map[string]bool{"OPS-11": true, "OPS-12": true}

// cited reports whether one of the places that a row names, or a test beside it, cites a clause of the section.
func cited(t *testing.T, clause, section string, places [][]string, base string) bool {
	t.Helper()
	cites := regexp.MustCompile(`\b` + clause + `-(?:[0-9.]+[a-z]?, )*` + section + `\b`)
	for _, name := range trackedFiles(t) {
		if !slices.Contains([]string{".go", ".proto", ".yaml"}, path.Ext(name)) {
			continue
		}
		for _, place := range places {
			at := strings.TrimSuffix(place[1], ".go")
			if (strings.HasPrefix(name, at) || strings.HasPrefix(name, base+at)) && cites.MatchString(read(t, name)) {
				return true
			}
		}
	}
	return false
}
