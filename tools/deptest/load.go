package deptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Graph is the packages of a workspace, their tests and all they import.
type Graph struct {
	prefix   string // module prefix of the repository
	packages []*pkg // sorted by path
	byPath   map[string]*pkg
	modules  []module
}

type pkg struct {
	path, name           string
	imports, testImports []string
	local                bool // in a module of the workspace
	standard             bool
}

type module struct {
	path, dir string
	requires  []string
}

// Load reads the workspace whose go.work is in dir. prefix is what the paths of its modules begin with. Packages that do not
// compile yet are read as far as their import lines go.
func Load(dir, prefix string) (*Graph, error) {
	g := &Graph{prefix: prefix, byPath: map[string]*pkg{}}
	if err := g.loadModules(dir); err != nil {
		return nil, err
	}
	args := []string{"list", "-e", "-deps", "-test", "-json=ImportPath,Name,Imports,TestImports,XTestImports,Standard,ForTest"}
	for _, m := range g.modules {
		args = append(args, m.path+"/...")
	}
	out, err := goCommand(dir, args...)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct {
			ImportPath, Name, ForTest          string
			Imports, TestImports, XTestImports []string
			Standard                           bool
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read the answer of go list: %w", err)
		}
		if p.ForTest != "" || strings.HasSuffix(p.ImportPath, ".test") {
			continue // variants built for tests: TestImports of the package itself say the same
		}
		n := &pkg{path: p.ImportPath, name: p.Name, imports: p.Imports, testImports: slices.Concat(p.TestImports, p.XTestImports), standard: p.Standard}
		n.local = slices.ContainsFunc(g.modules, func(m module) bool { return n.path == m.path || strings.HasPrefix(n.path, m.path+"/") })
		g.packages = append(g.packages, n)
		g.byPath[n.path] = n
	}
	slices.SortFunc(g.packages, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	return g, nil
}

func (g *Graph) loadModules(dir string) error {
	out, err := goCommand(dir, "list", "-m", "-f", "{{.Path}}\t{{.Dir}}")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		m := module{path: path, dir: dir}
		text, err := goCommand(dir, "mod", "edit", "-json")
		if err != nil {
			return err
		}
		var file struct{ Require []struct{ Path string } }
		if err := json.Unmarshal(text, &file); err != nil {
			return fmt.Errorf("read %s: %w", filepath.Join(dir, "go.mod"), err)
		}
		for _, r := range file.Require {
			m.requires = append(m.requires, r.Path)
		}
		g.modules = append(g.modules, m)
	}
	return nil
}

// Outside returns the directories under root that hold a go.mod but are not in the workspace, relative to root.
func (g *Graph) Outside(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != root) {
			return filepath.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(g.modules, func(m module) bool { return bytes.HasPrefix(text, []byte("module "+m.path+"\n")) }) {
			rel, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	return out, err
}

func (g *Graph) standard(path string) bool {
	p := g.byPath[path]
	return path == "C" || path == "unsafe" || p != nil && p.standard
}

func goCommand(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PWD="+dir, "GOWORK=") // the workspace of dir, whatever the caller's environment says
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out, nil
}
