package lifecycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// PROV-15.2: the state machine is pure. It may reckon with times and never ask for one; it does no I/O, has no lock, no
// goroutine and no randomness, so that the same record, event and time give the same answer.
func TestPure(t *testing.T) {
	banned := map[string]string{
		"context": "nothing here waits", "sync": "nothing here is shared", "sync/atomic": "nothing here is shared", "os": "no I/O", "io": "no I/O", "net": "no I/O",
		"net/http": "no I/O", "log": "no I/O", "log/slog": "no I/O", "math/rand": "no randomness", "math/rand/v2": "no randomness",
		"crypto/rand": "no randomness", "hash/maphash": "no randomness", "runtime": "no look at the process",
	}
	clock := map[string]bool{"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true, "Sleep": true, "Tick": true, "NewTimer": true, "NewTicker": true}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		looked++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); banned[path] != "" {
				t.Errorf("%s imports %s: %s", e.Name(), path, banned[path])
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%v starts a goroutine", set.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && clock[n.Sel.Name] {
					t.Errorf("%v asks for the time: %s", set.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
	if looked < 3 {
		t.Fatalf("%d files were read", looked)
	}
}
