package main

import (
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const source = `package p

type t int

func (x t) String() string {
	if x == 0 {
		return "none"
	}
	return "some"
}

func count(in []int) (n int) {
	for _, x := range in {
		if x < 3 || x == 7 {
			n++
		}
	}
	return n
}
`

// Each mutant differs in one place, is Go, and has a name of its own, by which a run goes on where another ended.
func TestPoints(t *testing.T) {
	found, err := points("p", "p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range found {
		mutant := source[:p.from] + p.text + source[p.to:]
		if _, err := format.Source([]byte(mutant)); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		got = append(got, p.name+": "+strings.TrimSpace(strings.Split(mutant, "\n")[len(strings.Split(source[:p.from], "\n"))-1]))
	}
	want := []string{
		"p/p.go:14:6 if never: if false && (x < 3 || x == 7) {",
		"p/p.go:14:12 || -> &&: if x < 3 && x == 7 {",
		"p/p.go:14:8 < -> <=: if x <= 3 || x == 7 {",
		"p/p.go:14:17 == -> !=: if x < 3 || x != 7 {",
		"p/p.go:15:4 statement removed: ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A seed draws the same mutants again, and the first of more are those of fewer.
func TestDraw(t *testing.T) {
	engine := t.TempDir()
	for _, pkg := range packages {
		if err := os.Mkdir(filepath.Join(engine, pkg), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"p.go", "p_test.go"} {
			if err := os.WriteFile(filepath.Join(engine, pkg, file), []byte(source), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	few, err := draw(engine, 4, 7)
	if err != nil {
		t.Fatal(err)
	}
	all, err := draw(engine, 1000, 7)
	if err != nil || len(all) != 5*len(packages) || !slices.Equal(few, all[:4]) {
		t.Errorf("%v, then %v: %v", few, all, err)
	}
}

func TestResults(t *testing.T) {
	known := parse("lived\tcover/a.go:1:1 if never\nkilled by all tests\tcover/a.go:2:1 if never\nlived\tcover/a.go:3:1 if ne")
	if len(known) != 2 {
		t.Errorf("a line that was not written to its end counts: %v", known)
	}
	drawn := []point{{pkg: "cover", name: "cover/a.go:1:1 if never"}, {pkg: "cover", name: "cover/a.go:2:1 if never"}}
	if got := table(drawn, known); !strings.Contains(got, "| cover | 2 | 2 | 1 |\n") || !strings.Contains(got, "| all | 2 | 2 | 1 |\n") {
		t.Error(got)
	}
}
