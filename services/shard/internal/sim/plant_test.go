package sim

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plantedEnv names the defect that a run of a planted build has. Without it the build has none.
const plantedEnv = "SIM_PLANTED_DEFECT"

// variant is a function as a defect leaves it.
type variant struct{ defect, text string }

// plant compiles the command with all defects in it, through an overlay: no file of the module changes. A function that a
// defect changes is there as it is and as the defect leaves it, and the environment chooses, because a build for each
// defect takes ten times as long.
func plant(t *testing.T, defects map[string]defect) (bin string) {
	t.Helper()
	variants := map[string]map[string][]variant{} // by file and function
	for _, name := range sortedNames(defects) {
		for path, patched := range defects[name].patch(t) {
			if variants[path] == nil {
				variants[path] = map[string][]variant{}
			}
			before, after := functions(t, path, read(t, path)), functions(t, path, patched)
			changed := false
			for _, f := range before {
				k := slices.IndexFunc(after, func(g function) bool { return g.key == f.key })
				if k < 0 || after[k].head() != f.head() {
					t.Fatalf("%s: the defect changes more than the body of %s; write it again", name, f.key)
				}
				if after[k].text() != f.text() {
					changed = true
					variants[path][f.key] = append(variants[path][f.key], variant{name, after[k].text()})
				}
			}
			if !changed {
				t.Fatalf("%s: the defect changes no function of %s; write it again", name, path)
			}
		}
	}
	dir := t.TempDir()
	replace := map[string]string{}
	put := func(path, text string) {
		if replace[path] == "" {
			replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		}
		if err := os.WriteFile(replace[path], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, of := range variants {
		put(path, join(read(t, path), functions(t, path, read(t, path)), of))
		pkg := filepath.Dir(path)
		put(filepath.Join(pkg, "planted.go"), "package "+filepath.Base(pkg)+"\nimport \"os\"\nvar planted = os.Getenv(\""+plantedEnv+"\")\n")
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o644); err != nil {
		t.Fatal(err)
	}
	bin = filepath.Join(dir, "sim")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", bin, "./cmd/sim").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// patch applies a defect and returns the files it changes, by path.
func (d defect) patch(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for i, e := range d.edits {
		path, err := filepath.Abs(filepath.Join("..", e.file))
		if err != nil {
			t.Fatal(err)
		}
		text, ok := out[path]
		if !ok {
			text = read(t, path)
		}
		if !strings.Contains(text, e.from) {
			t.Fatalf("edit %d: %s has no %q any more; write the defect again", i+1, e.file, e.from)
		}
		out[path] = strings.Replace(text, e.from, e.to, 1)
	}
	return out
}

// function is a function declaration in the text of its file.
type function struct {
	key  string // receiver and name
	src  string
	decl *ast.FuncDecl
	base token.Pos
}

func (f *function) cut(from, to token.Pos) string { return f.src[from-f.base : to-f.base] }
func (f *function) text() string                  { return f.cut(f.decl.Pos(), f.decl.End()) }
func (f *function) head() string                  { return f.cut(f.decl.Pos(), f.decl.Body.Lbrace) }

func functions(t *testing.T, path, src string) (out []function) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			d.Doc = nil
			f := function{src: src, decl: d, base: file.FileStart}
			f.key = d.Name.Name
			if d.Recv != nil {
				f.key = f.cut(d.Recv.Pos(), d.Recv.End()) + f.key
			}
			out = append(out, f)
		}
	}
	return out
}

// join writes a file in which each changed function chooses between its variants.
func join(src string, all []function, variants map[string][]variant) string {
	var b strings.Builder
	at := 0
	for _, f := range all {
		of := variants[f.key]
		if of == nil {
			continue
		}
		call := f.decl.Name.Name
		if f.decl.Recv != nil {
			call = f.decl.Recv.List[0].Names[0].Name + "." + call
		}
		if f.decl.Type.Results != nil {
			call = "return " + call
		}
		var args []string
		for _, p := range f.decl.Type.Params.List {
			for _, n := range p.Names {
				args = append(args, n.Name)
			}
			if _, many := p.Type.(*ast.Ellipsis); many {
				args[len(args)-1] += "..."
			}
		}
		b.WriteString(src[at:f.decl.Pos()-f.base] + f.head() + "{\nswitch planted {\n")
		for i, v := range of {
			fmt.Fprintf(&b, "case %q: %s__%d(%s)\n", v.defect, call, i, strings.Join(args, ", "))
		}
		fmt.Fprintf(&b, "default: %s__sound(%s)\n}\n}\n", call, strings.Join(args, ", "))
		name := int(f.decl.Name.End() - f.decl.Pos())
		for i, v := range of {
			fmt.Fprintf(&b, "%s__%d%s\n", v.text[:name], i, v.text[name:])
		}
		b.WriteString(f.text()[:name] + "__sound" + f.text()[name:])
		at = int(f.decl.End() - f.base)
	}
	return b.String() + src[at:]
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func sortedNames(m map[string]defect) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
