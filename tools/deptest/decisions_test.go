package deptest

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	recordFile   = regexp.MustCompile(`^([0-9]{4})-[a-z0-9-]+\.md$`)
	recordHead   = regexp.MustCompile(`^# ([0-9]{4}): ([A-Z].*[^ .\n])\n\nStatus: (.*[^ .\n])\n`)
	recordRow    = regexp.MustCompile(`(?m)^\| \[([0-9]{4})\]\(([^)]+)\) \| (.+) \| (.+) \|$`)
	relation     = regexp.MustCompile(`(superseded|supersedes|amended|amends|completed|completes)[^;,]*`)
	recordNumber = regexp.MustCompile(`[0-9]{4}`)
	notInSlug    = regexp.MustCompile(`[^a-z0-9]+`)
)

// inverse is what the other record says.
var inverse = map[string]string{
	"superseded": "supersedes", "supersedes": "superseded", "amended": "amends", "amends": "amended",
	"completed": "completes", "completes": "completed",
}

type record struct{ file, title, status string }

// docs/adr/README.md lists every record with its title and status. A record's file is named after its title, and two records of
// which one changes the other both say so.
func TestIndexOfDecisions(t *testing.T) {
	records := map[string]record{}
	for _, name := range trackedFiles(t) {
		if path.Dir(name) != "docs/adr" || name == "docs/adr/README.md" {
			continue
		}
		file := path.Base(name)
		m := recordFile.FindStringSubmatch(file)
		h := recordHead.FindStringSubmatch(read(t, name))
		if m == nil || h == nil || h[1] != m[1] {
			t.Errorf(`%s: a record is NNNN-its-title.md and begins with "# NNNN: Decide something", an empty line and "Status: accepted"`, name)
			continue
		}
		slug := strings.Trim(notInSlug.ReplaceAllString(strings.ReplaceAll(strings.ToLower(h[2]), "'", ""), "-"), "-")
		if want := h[1] + "-" + slug + ".md"; file != want {
			t.Errorf("%s is named after another title: git mv it to docs/adr/%s", name, want)
		}
		if other, taken := records[h[1]]; taken {
			t.Errorf("%s and %s have one number", file, other.file)
		}
		records[h[1]] = record{file: file, title: h[2], status: h[3]}
	}

	indexed := map[string]bool{}
	for _, row := range recordRow.FindAllStringSubmatch(read(t, "docs/adr/README.md"), -1) {
		if indexed[row[1]] {
			t.Errorf("the index lists %s twice", row[1])
		}
		indexed[row[1]] = true
		if got, want := (record{row[2], row[3], row[4]}), records[row[1]]; got != want {
			t.Errorf("the index says %s: %q\nthe record says  %q", row[1], got, want)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(records)) {
		r := records[n]
		if !indexed[n] {
			t.Errorf("docs/adr/README.md misses, under its area:\n| [%s](%s) | %s | %s |", n, r.file, r.title, r.status)
		}
		for _, clause := range relation.FindAllString(r.status, -1) {
			verb, _, _ := strings.Cut(clause, " ")
			for _, other := range recordNumber.FindAllString(clause, -1) {
				if o, exists := records[other]; !exists || !slices.ContainsFunc(relation.FindAllString(o.status, -1), func(back string) bool {
					return strings.HasPrefix(back, inverse[verb]) && strings.Contains(back, n)
				}) {
					t.Errorf("%s says %q, and the status of %s does not say %q", r.file, clause, other, inverse[verb]+" "+n)
				}
			}
		}
	}
}

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(path.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
