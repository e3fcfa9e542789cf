package core

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// deterministic lists the packages of the core, with what a file of each may import beside the others.
var deterministic = []string{"core", "engine", "demand", "inventory", "resource", "symbol"}

// SHARD-4.2, ENG-2.1: the core imports nothing that knows the time, chance, the network, files or other processes.
func TestCoreImportsNothingImpure(t *testing.T) {
	banned := map[string]string{
		"time": "time arrives in events", "math/rand": "a replay must draw the same", "math/rand/v2": "a replay must draw the same",
		"crypto/rand": "a replay must draw the same", "os": "the shell owns files", "net": "the shell owns the network",
		"log/slog": "records are effects", "context": "nothing blocks here", "google.golang.org/protobuf/proto": "the core speaks no wire",
	}
	locks := map[string]string{"sync": "one goroutine steps the core", "sync/atomic": "one goroutine steps the core"}
	for file, f := range sources(t) {
		inEngine := strings.HasPrefix(file, filepath.Join("..", "engine"))
		for _, i := range f.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			if why, no := banned[path]; no {
				t.Errorf("%s imports %s: %s", file, path, why)
			}
			if why, no := locks[path]; no && !inEngine { // Plan's worker pool is the one exception
				t.Errorf("%s imports %s: %s", file, path, why)
			}
			if strings.HasPrefix(path, "k8s.io") || strings.Contains(path, "bigfleet/gen/") {
				t.Errorf("%s imports %s: the core speaks no wire", file, path)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok && !inEngine {
				t.Errorf("%s starts a goroutine", file)
			}
			return true
		})
	}
}

// ENG-3.5: floating point takes part in no decision: below the core it is found where numbers come in, and where people read
// them.
func TestDecisionsUseNoFloats(t *testing.T) {
	edges := map[string]bool{"PenaltyOfDollars": true, "Dollars": true, "PriceOfDollars": true, "ProbabilityOf": true, // money comes in and goes out
		"money": true, "amount": true, // of explanations
		"spread": true} // how far labels of ids are apart, which nothing compares
	for file, f := range sources(t) {
		if strings.HasPrefix(file, filepath.Join("..", "core")) {
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && edges[fn.Name.Name] {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && (id.Name == "float64" || id.Name == "float32") {
					t.Errorf("%s uses %s", file, id.Name)
				}
				return true
			})
		}
	}
}

// SHARD-4.2: a range over a map in the core's own package says beside it why the order cannot matter.
func TestMapsAreWalkedInOrder(t *testing.T) {
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	if _, err := (&types.Config{Importer: importer.ForCompiler(set, "source", nil)}).Check("core", set, files, info); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		said := map[int]bool{}
		for _, g := range f.Comments {
			for _, c := range g.List {
				if strings.Contains(c.Text, "sorted below") || strings.Contains(c.Text, "order does not matter") {
					said[set.Position(c.Pos()).Line] = true
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			r, ok := n.(*ast.RangeStmt)
			if !ok {
				return true
			}
			if _, isMap := info.Types[r.X].Type.Underlying().(*types.Map); isMap && !said[set.Position(r.Pos()).Line] {
				t.Errorf("%s walks a map in no order", set.Position(r.Pos()))
			}
			return true
		})
	}
}

// sources parses the files of the deterministic packages, tests left out.
func sources(t *testing.T) map[string]*ast.File {
	out := map[string]*ast.File{}
	set := token.NewFileSet()
	for _, pkg := range deterministic {
		list, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
		if err != nil || len(list) == 0 {
			t.Fatalf("no files of %s: %v", pkg, err)
		}
		for _, file := range list {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(set, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			out[file] = f
		}
	}
	return out
}
