package deptest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a reader of the shard's rules can hold in mind at once (docs/adr/0870). A type with more methods holds several ideas, and each
// of them is a type. A function with more lines does not fit a screen.
const (
	methodsMax            = 40
	functionLinesMax      = 75
	referenceLinesMax     = 90  // the reference engine tells a rule in one piece
	backwardPerMilleMax   = 250 // of the references between the files of a package
	fewReferences         = 40  // of a package with fewer, one more reference moves the share too far
	fileLinesMax          = 500 // of any file that a person writes
	engineLinesMax        = 17_050
	enginePackagesMin     = 6
	handWrittenFilesLeast = 800
)

// shapes measures every package below a folder of the shard.
func shapes(t *testing.T, area string) map[string]Shape {
	t.Helper()
	out, top := map[string]Shape{}, filepath.Join(root, "services", "shard", "internal")
	err := filepath.WalkDir(filepath.Join(top, area), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		s, err := ShapeOf(path)
		if s.Files > 0 {
			name, _ := filepath.Rel(top, path)
			out[filepath.ToSlash(name)] = s
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEngineAndCoreCanBeReadInPieces(t *testing.T) {
	for area, least := range map[string]int{"engine": 50, "core": 20} {
		types := 0
		for name, s := range shapes(t, area) {
			types += len(s.Methods)
			for of, n := range s.Methods {
				if n > methodsMax {
					t.Errorf("%s of %s has %d methods, more than %d: give its ideas types of their own", of, name, n, methodsMax)
				}
			}
			most := functionLinesMax
			if name == "engine/reference" {
				most = referenceLinesMax
			}
			for of, n := range s.Functions {
				if n > most {
					t.Errorf("%s of %s has %d lines, more than %d: name its steps", of, name, n, most)
				}
			}
			if s.References >= fewReferences && s.Backward*1000 > s.References*backwardPerMilleMax {
				t.Errorf("%s: %d of %d references between files run backwards, more than a quarter: `go run ./cmd/shape` in tools/deptest counts them",
					name, s.Backward, s.References)
			}
		}
		if types < least {
			t.Errorf("%d types with methods below %s: that is not the %s", types, area, area)
		}
	}
}

// The engine grows by rules. Lines beyond the bound want a decision: the rule is worth them, or others go (docs/adr/0870).
func TestEngineHasRoomForItsRulesAlone(t *testing.T) {
	packages, lines := 0, 0
	for name, s := range shapes(t, "engine") {
		if name != "engine/reference" {
			packages, lines = packages+1, lines+s.Lines
		}
	}
	if packages < enginePackagesMin || lines > engineLinesMax {
		t.Errorf("%d lines in %d packages; the bound is %d lines", lines, packages, engineLinesMax)
	}
}

// No file that a person writes is longer than a reader scrolls.
func TestNoFileIsTooLong(t *testing.T) {
	files := 0
	for _, name := range trackedFiles(t) {
		if !strings.HasSuffix(name, ".go") || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if head, _, _ := strings.Cut(string(text), "\npackage "); strings.Contains(head, "DO NOT EDIT.") {
			continue
		}
		files++
		if n := strings.Count(string(text), "\n"); n > fileLinesMax {
			t.Errorf("%s has %d lines, more than %d: it holds two ideas", name, n, fileLinesMax)
		}
	}
	if files < handWrittenFilesLeast {
		t.Fatalf("only %d files were read", files)
	}
}

// A package of three files: two use each other, and both use the third.
func TestShapeOfAPackage(t *testing.T) {
	s, err := ShapeOf(filepath.Join("testdata", "shape"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Files != 3 || s.References != 4 || s.Backward != 1 || s.Largest(1) != "caller 2" || s.Functions["caller.ask"] != 1 || s.Functions["long"] != 4 {
		t.Errorf("measured %+v", s)
	}
}
