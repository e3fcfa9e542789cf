package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// siblingSums are the lines of go.sum for the modules released so far.
type siblingSums map[string][]string

// writeModule writes the released form of a module below tree and into the proxy, and notes its sums.
func (p *plan) writeModule(m *module, tree string, sums siblingSums) error {
	dir := filepath.Join(tree, filepath.FromSlash(m.dir))
	if err := p.copyTracked(m.dir, dir); err != nil {
		return err
	}
	if err := p.rewriteMod(dir); err != nil {
		return err
	}
	if err := addSums(dir, m, sums); err != nil {
		return err
	}
	lines, err := p.writeProxy(m, dir)
	if err != nil {
		return err
	}
	sums[m.path] = lines
	return nil
}

// copyTracked copies the tracked files of a module. The license of the repository is that of a module without one, as the go
// command has it.
func (p *plan) copyTracked(from, to string) error {
	list := exec.Command("git", "-C", p.root, "ls-files", "-z", "--", from)
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		rel, ok := strings.CutPrefix(string(name), from+"/")
		if !ok {
			continue
		}
		if err := copyFile(filepath.Join(p.root, string(name)), filepath.Join(to, filepath.FromSlash(rel))); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(to, "LICENSE")); err == nil {
		return nil
	}
	return copyFile(filepath.Join(p.root, "LICENSE"), filepath.Join(to, "LICENSE"))
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// rewriteMod requires the siblings at the version of the release and drops the directives that replace them by path.
func (p *plan) rewriteMod(dir string) error {
	mod, err := readModule(dir)
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(mod.Replace) {
		if !strings.HasPrefix(r.Old.Path, prefix) {
			return fmt.Errorf("go.mod replaces %s: consumers ignore that, so they would build something else", r.Old.Path)
		}
		if err := mod.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	for _, r := range mod.Require {
		if strings.HasPrefix(r.Mod.Path, prefix) {
			if err := mod.AddRequire(r.Mod.Path, p.version); err != nil {
				return err
			}
		}
	}
	mod.Cleanup()
	return os.WriteFile(filepath.Join(dir, "go.mod"), modfile.Format(mod.Syntax), 0o644)
}

// addSums adds the sums of the siblings to go.sum, in the order that the go command writes.
func addSums(dir string, m *module, sums siblingSums) error {
	name := filepath.Join(dir, "go.sum")
	data, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	for _, path := range m.siblings {
		lines = append(lines, sums[path]...)
	}
	if len(lines) == 0 {
		return nil
	}
	slices.SortFunc(lines, compareSums)
	return os.WriteFile(name, []byte(strings.Join(slices.Compact(lines), "\n")+"\n"), 0o644)
}

func compareSums(a, b string) int {
	x, y := strings.Fields(a), strings.Fields(b)
	if c := strings.Compare(x[0], y[0]); c != 0 {
		return c
	}
	return strings.Compare(x[1], y[1])
}

// tagOf is the tag under which the go command finds a module.
func (p *plan) tagOf(m *module) string { return path.Join(m.dir, p.version) }
