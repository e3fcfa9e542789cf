package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// prefix is the module path of the repository.
const prefix = "github.com/bigfleet-dev/bigfleet/"

// module is one Go module of the repository that others import or install.
type module struct {
	path     string // for example github.com/bigfleet-dev/bigfleet/sdk/provider
	dir      string // relative to the checkout, with slashes
	siblings []string
}

// publishedModules lists the modules of go.work that are released, dependencies first. Tests and tools of the repository are not.
func publishedModules(root string) ([]*module, error) {
	data, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", data, nil)
	if err != nil {
		return nil, err
	}
	var all []*module
	for _, use := range work.Use {
		dir := strings.TrimPrefix(use.Path, "./")
		if dir == "e2e" || strings.HasPrefix(dir, "tools/") {
			continue
		}
		mod, err := readModule(filepath.Join(root, dir))
		if err != nil {
			return nil, err
		}
		m := &module{path: mod.Module.Mod.Path, dir: dir}
		if m.path != prefix+dir {
			return nil, fmt.Errorf("%s/go.mod names %s: a tag finds a module only at %s", dir, m.path, prefix+dir)
		}
		for _, r := range mod.Require {
			if strings.HasPrefix(r.Mod.Path, prefix) {
				m.siblings = append(m.siblings, r.Mod.Path)
			}
		}
		all = append(all, m)
	}
	return dependenciesFirst(all)
}

func readModule(dir string) (*modfile.File, error) {
	name := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, data, nil)
}

// dependenciesFirst orders modules so that each comes after those that it requires. A module that is not released must not be
// required by one that is.
func dependenciesFirst(all []*module) ([]*module, error) {
	byPath := map[string]*module{}
	for _, m := range all {
		byPath[m.path] = m
	}
	slices.SortFunc(all, func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	var out []*module
	state := map[*module]int{} // 1: being visited, 2: listed
	var visit func(m *module) error
	visit = func(m *module) error {
		if state[m] == 2 {
			return nil
		}
		if state[m] == 1 {
			return fmt.Errorf("%s requires itself through its siblings", m.path)
		}
		state[m] = 1
		for _, path := range m.siblings {
			s := byPath[path]
			if s == nil {
				return fmt.Errorf("%s requires %s, which is not released", m.path, path)
			}
			if err := visit(s); err != nil {
				return err
			}
		}
		state[m] = 2
		out = append(out, m)
		return nil
	}
	for _, m := range all {
		if err := visit(m); err != nil {
			return nil, err
		}
	}
	return out, nil
}
