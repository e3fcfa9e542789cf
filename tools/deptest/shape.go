package deptest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Shape is what a reader meets in one package: how much there is, how its files refer to each other, and how large its types are.
type Shape struct {
	Files, Lines         int
	Longest              int            // lines of the longest file
	Functions            map[string]int // lines, by receiver and name
	References, Backward int            // from file to file; against the order of files that has fewest, as far as it was found
	Methods              map[string]int // by type
}

// ShapeOf measures the package in a folder, tests left out. Imports are not followed, so a folder of any commit can be measured.
func ShapeOf(dir string) (Shape, error) {
	s := Shape{Methods: map[string]int{}, Functions: map[string]int{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return s, err
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return s, err
		}
		f, err := parser.ParseFile(set, name, text, 0)
		if err != nil {
			return s, err
		}
		lines := strings.Count(string(text), "\n")
		files, s.Files, s.Lines, s.Longest = append(files, f), s.Files+1, s.Lines+lines, max(s.Longest, lines)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				of := receiver(fn.Recv.List[0].Type)
				s.Methods[of]++
				name = of + "." + name
			}
			s.Functions[name] = set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1
		}
	}
	graph := references(set, files)
	order := map[string]int{}
	for i, f := range fewestBackward(graph) {
		order[f] = i
	}
	for from, to := range graph {
		s.References += len(to)
		for f := range to {
			if order[f] < order[from] {
				s.Backward++
			}
		}
	}
	return s, nil
}

// Largest names the types with the most methods, n of them.
func (s Shape) Largest(n int) string {
	types := slices.SortedFunc(maps.Keys(s.Methods), func(a, b string) int {
		return cmp.Or(s.Methods[b]-s.Methods[a], strings.Compare(a, b))
	})
	var out []string
	for _, t := range types[:min(n, len(types))] {
		out = append(out, fmt.Sprintf("%s %d", t, s.Methods[t]))
	}
	return strings.Join(out, ", ")
}

// references says which files use something that another declares at the top: a name or a method.
func references(set *token.FileSet, files []*ast.File) map[string]map[string]bool {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Error: func(error) {}, Importer: nothing{}, FakeImportC: true}
	pkg, _ := config.Check("p", set, files, info) // what imports would say is missing, and is not asked for
	graph := map[string]map[string]bool{}
	file := func(at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
	for _, f := range files {
		graph[file(f.Pos())] = map[string]bool{}
	}
	for id, o := range info.Uses {
		fn, isFunc := o.(*types.Func)
		if o.Pkg() != pkg || o.Parent() != pkg.Scope() && (!isFunc || fn.Signature().Recv() == nil) {
			continue
		}
		if from, to := file(id.Pos()), file(o.Pos()); from != to {
			graph[from][to] = true
		}
	}
	return graph
}

type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("%s is not read", path)
}

// fewestBackward orders files so that few references run backwards (Eades, Lin and Smyth): what nothing left uses goes to the front,
// what uses nothing left goes to the end, and of the rest the one that uses most and is used least goes to the front.
func fewestBackward(graph map[string]map[string]bool) []string {
	left := slices.Sorted(maps.Keys(graph))
	uses := func(a string) (n int) {
		for _, b := range left {
			if graph[a][b] {
				n++
			}
		}
		return n
	}
	used := func(b string) (n int) {
		for _, a := range left {
			if graph[a][b] {
				n++
			}
		}
		return n
	}
	var front, end []string
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(f string) bool { return uses(f) == 0 })
		if i >= 0 {
			end = append(end, left[i])
			left = slices.Delete(left, i, i+1)
			continue
		}
		if i = slices.IndexFunc(left, func(f string) bool { return used(f) == 0 }); i < 0 {
			best := uses(left[0]) - used(left[0])
			i = 0
			for k, f := range left {
				if d := uses(f) - used(f); d > best {
					i, best = k, d
				}
			}
		}
		front = append(front, left[i])
		left = slices.Delete(left, i, i+1)
	}
	slices.Reverse(end)
	return append(front, end...)
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
