package deptest

import (
	"strconv"
	"strings"
	"testing"
)

// Every path, link, clause, record, test and make target that a text of this repository names exists.
func TestPointersLeadSomewhere(t *testing.T) {
	p := pointers(t)
	found, err := p.Check()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}

func TestPointerCheckBites(t *testing.T) {
	p := pointers(t)
	for text, want := range map[string]string{
		"see services/shard/nowhere/plan.go.":           "a.md:1: services/shard/nowhere/plan.go does not exist",
		"one\n`tools/generate.sh`":                      "a.md:2: tools/generate.sh does not exist",
		"[a](docs/nowhere.md)":                          "a.md:1: docs/nowhere.md does not exist\na.md:1: the link docs/nowhere.md leads nowhere",
		"[a](nowhere.md)":                               "a.md:1: the link nowhere.md leads nowhere",
		"[a](README.md#nowhere)":                        "a.md:1: README.md has no heading #nowhere",
		"internal/nowhere, internal/engine, kit/rpc":    "a.md:1: no path ends in internal/nowhere",
		"`phase9.go`":                                   "a.md:1: no file is named phase9.go",
		"ADR 9999 and adr/9998":                         "a.md:1: docs/adr has no record 9999\na.md:1: docs/adr has no record 9998",
		"ENG-13.99, COORD-21.7, ENG-S1, SHARD-33.5.1":   "a.md:1: docs/spec has no clause ENG-13.99",
		"`TestNowhere`, `TestPointerCheckBites`":        "a.md:1: no test is named TestNowhere",
		"`make everything`":                             "a.md:1: the Makefile has no target everything",
		"[a](https://example.com/x), services/*/doc.go": "",
		"[a](docs/) `make test` ENG-9.4a docs/adr/0070": "",
	} {
		if got := strings.Join(p.CheckText("a.md", text), "\n"); got != want {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
	code := "package a\n/" + "/ see docs/nowhere.md\nvar path = \"docs/written.md\"\n"
	if got := strings.Join(p.CheckText("a.go", code), "\n"); got != "a.go:2: docs/nowhere.md does not exist" {
		t.Errorf("of Go only comments are read: %q", got)
	}
}

// The walk of docs/architecture.md from a Pod to a Ready node has at most fifteen steps, numbered, each with the file that does it.
func TestWalkNamesItsFiles(t *testing.T) {
	_, walk, _ := strings.Cut(read(t, "docs/architecture.md"), "\n## From a Pod to a Ready node\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	steps := 0
	for line := range strings.Lines(walk) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || strings.HasPrefix(cells[1], "--") || strings.TrimSpace(cells[1]) == "" {
			continue
		}
		steps++
		if got := strings.TrimSpace(cells[1]); got != strconv.Itoa(steps) {
			t.Errorf("step %d has the number %q", steps, got)
		}
		if !treePath.MatchString(cells[3]) {
			t.Errorf("step %d names no file: %s", steps, line)
		}
	}
	if steps < 10 || steps > 15 {
		t.Errorf("the walk has %d steps", steps)
	}
}

func pointers(t *testing.T) *Pointers {
	t.Helper()
	p, err := NewPointers(root, trackedFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
