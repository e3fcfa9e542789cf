package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// lastRelease is the highest tag of a release below the version, or "" before the first. Pre-releases promise nothing.
func (p *plan) lastRelease() (string, error) {
	out, err := p.git("tag", "--list", "v*")
	if err != nil {
		return "", err
	}
	last := ""
	for _, tag := range strings.Fields(out) {
		if semver.IsValid(tag) && semver.Prerelease(tag) == "" && semver.Compare(tag, p.version) < 0 && semver.Compare(tag, last) > 0 {
			last = tag
		}
	}
	return last, nil
}

// compatible compares with the release before: what programs speak, which never breaks, and what people import, which breaks only
// where docs/releases.md allows it. It returns the section of the notes that names what breaks.
func (p *plan) compatible() (string, error) {
	last, err := p.lastRelease()
	if err != nil {
		return "", err
	}
	if last == "" {
		fmt.Fprintln(os.Stderr, "release: there is no release before", p.version+", so no API is compared")
		return "", nil
	}
	before, err := os.MkdirTemp("", "bigfleet-before-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(before) }()
	if err := p.export(last, before); err != nil {
		return "", err
	}
	if err := p.wireCompatible(last, before); err != nil {
		return "", err
	}
	broken, err := p.apiChanges(last, before)
	if err != nil || len(broken) == 0 {
		return "", err
	}
	list := "- " + strings.Join(broken, "\n- ") + "\n"
	if !mayBreak(last, p.version) {
		return "", fmt.Errorf("%w: %s after %s would break programs that import it; take the change back, or choose a higher version:\n%s", errAPI, p.version, last, list)
	}
	return "\n### Changes of the Go API that break programs of " + last + "\n\n" + list, nil
}

var (
	errAPI  = errors.New("the Go API is not compatible")
	errWire = errors.New("the wire contract is not compatible")
)

// mayBreak says whether a version may change a Go API: a minor version before 1.0.0, a major version after it.
func mayBreak(last, next string) bool {
	if semver.Major(last) == "v0" {
		return semver.MajorMinor(last) != semver.MajorMinor(next)
	}
	return semver.Major(last) != semver.Major(next)
}

// export writes the tree of a commit into a directory, through an index of its own.
func (p *plan) export(commit, to string) error {
	env := []string{"GIT_INDEX_FILE=" + filepath.Join(to, ".index")}
	if _, err := p.gitEnv(env, "read-tree", commit); err != nil {
		return err
	}
	_, err := p.gitEnv(env, "checkout-index", "--all", "--prefix="+to+string(filepath.Separator))
	return err
}

// wireCompatible fails when the protos break those of the release before, by the rules of buf.yaml.
func (p *plan) wireCompatible(last, before string) error {
	install := exec.Command(filepath.Join(p.root, "tools", "install.sh"), "api")
	install.Stderr = os.Stderr
	if err := install.Run(); err != nil {
		return fmt.Errorf("tools/install.sh api: %w", err)
	}
	image := func(root string) (string, error) {
		name := filepath.Join(before, fmt.Sprintf(".%x.binpb", len(root)))
		_, err := p.buf(root, "build", "--path", "proto/bigfleet", "--exclude-source-info", "-o", name)
		return name, err
	}
	was, err := image(before)
	if err != nil {
		return err
	}
	is, err := image(p.root)
	if err != nil {
		return err
	}
	if said, err := p.buf(p.root, "breaking", is, "--exclude-imports", "--config", "buf.yaml", "--against", was); err != nil {
		return fmt.Errorf("%w: %s breaks %s; a breaking change is a new package (WIRE-1.10):\n%s%w", errWire, p.version, last, said, err)
	}
	return nil
}

func (p *plan) buf(dir string, args ...string) (string, error) {
	c := exec.Command(filepath.Join(p.root, ".bin", "buf"), args...)
	c.Dir = dir
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("buf %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// apiChanges lists what programs lose that import the modules of the release before. Packages of services are internal.
func (p *plan) apiChanges(last, before string) ([]string, error) {
	modules, err := publishedModules(before)
	if err != nil {
		return nil, err
	}
	modules = slices.DeleteFunc(modules, func(m *module) bool { return strings.HasPrefix(m.dir, "services/") })
	if err := joinOnly(before, last, modules); err != nil {
		return nil, err
	}
	var broken []string
	for _, m := range modules {
		was, err := packagesOf(before, m)
		if err != nil {
			return nil, err
		}
		is := &apidiff.Module{Path: m.path}
		if _, err := os.Stat(filepath.Join(p.root, filepath.FromSlash(m.dir), "go.mod")); err == nil {
			if is, err = packagesOf(p.root, m); err != nil {
				return nil, err
			}
		}
		for _, c := range apidiff.ModuleChanges(was, is).Changes {
			if !c.Compatible {
				broken = append(broken, m.path+": "+c.Message)
			}
		}
	}
	slices.Sort(broken)
	return broken, nil
}

// joinOnly makes the modules of an exported release use each other as they are in it. They are required by version there, and
// a registry need not have that version.
func joinOnly(root, version string, modules []*module) error {
	var work strings.Builder
	work.WriteString("go 1.26.0\n")
	for _, m := range modules {
		fmt.Fprintf(&work, "use ./%s\nreplace %s %s => ./%s\n", m.dir, m.path, version, m.dir)
	}
	return os.WriteFile(filepath.Join(root, "go.work"), []byte(work.String()), 0o600)
}

// packagesOf loads the packages of a module that other modules may import.
func packagesOf(root string, m *module) (*apidiff.Module, error) {
	dir := filepath.Join(root, filepath.FromSlash(m.dir))
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedExportFile, Dir: dir,
		Env: append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work")), BuildFlags: []string{"-trimpath", "-mod=readonly"},
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	out := &apidiff.Module{Path: m.path}
	for _, pkg := range found {
		if len(pkg.Errors) > 0 {
			return nil, fmt.Errorf("%s does not build: %w", pkg.PkgPath, pkg.Errors[0])
		}
		if pkg.Name != "main" && !internal(pkg.Types) {
			out.Packages = append(out.Packages, pkg.Types)
		}
	}
	return out, nil
}

func internal(pkg *types.Package) bool {
	return slices.Contains(strings.Split(pkg.Path(), "/"), "internal")
}
