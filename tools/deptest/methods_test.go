package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// methodsMax is how many methods one type of the engine or the core may have: a type with more holds several ideas, and each of
// them is a type.
const methodsMax = 40

func TestNoTypeOfEngineAndCoreHasTooManyMethods(t *testing.T) {
	for name, least := range map[string]int{"engine": 50, "core": 20} {
		methods := methodsBelow(t, filepath.Join(root, "services", "shard", "internal", name))
		if len(methods) < least {
			t.Errorf("%d types with methods below %s: that is not the %s", len(methods), name, name)
		}
		for name, n := range methods {
			if n > methodsMax {
				t.Errorf("%s has %d methods, more than %d: give its ideas types of their own", name, n, methodsMax)
			}
		}
	}
}

// methodsBelow counts the methods of each type of the packages below a folder, as "package.Type".
func methodsBelow(t *testing.T, top string) map[string]int {
	t.Helper()
	methods := map[string]int{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[filepath.Base(filepath.Dir(path))+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return methods
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}
