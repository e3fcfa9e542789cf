package deptest

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// methodsMax is how many methods one type of the engine or the core may have: a type with more holds several ideas, and each of
// them is a type.
const methodsMax = 40

func TestNoTypeOfEngineAndCoreHasTooManyMethods(t *testing.T) {
	for area, least := range map[string]int{"engine": 50, "core": 20} {
		types := 0
		err := filepath.WalkDir(filepath.Join(root, "services", "shard", "internal", area), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			s, err := ShapeOf(path)
			types += len(s.Methods)
			for name, n := range s.Methods {
				if n > methodsMax {
					t.Errorf("%s of %s has %d methods, more than %d: give its ideas types of their own", name, path, n, methodsMax)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if types < least {
			t.Errorf("%d types with methods below %s: that is not the %s", types, area, area)
		}
	}
}

// A package of three files: two use each other, and both use the third.
func TestShapeOfAPackage(t *testing.T) {
	s, err := ShapeOf(filepath.Join("testdata", "shape"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Files != 3 || s.References != 4 || s.Backward != 1 || s.Largest(1) != "caller 2" {
		t.Errorf("measured %+v", s)
	}
}
