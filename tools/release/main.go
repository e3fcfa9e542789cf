package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"golang.org/x/mod/semver"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// plan is what one run makes.
type plan struct {
	root    string // of the checkout
	version string
	out     string
	modules []*module // dependencies first

	platforms []string // of the binaries, as GOOS/GOARCH
	programs  string   // directory of programs that were built before, or ""
}

func run(args []string) error {
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	root := f.String("root", ".", "checkout to release")
	version := f.String("version", "", "semantic version, for example v0.2.0 (required)")
	out := f.String("out", "dist", "directory for the artefacts; what it holds is replaced")
	tag := f.Bool("tag", false, "make the release commit and its tags in the repository; without it this is a dry run")
	binaries := f.Bool("binaries", true, "build the binaries and images, too")
	on := f.String("platforms", strings.Join(platforms, ","), "GOOS/GOARCH of the binaries, with commas")
	programs := f.String("programs", "", "instead of building programs, package those of this directory, built for this machine; for tests")
	if err := f.Parse(args); err != nil {
		return err
	}
	if !semver.IsValid(*version) || semver.Build(*version) != "" || strings.Count(*version, ".") < 2 {
		return fmt.Errorf("-version %q is not a full semantic version such as v0.2.0", *version)
	}
	p := &plan{version: *version, out: *out, platforms: strings.Split(*on, ","), programs: *programs}
	if p.programs != "" {
		p.platforms = []string{runtime.GOOS + "/" + runtime.GOARCH}
	}
	var err error
	if p.root, err = filepath.Abs(*root); err != nil {
		return err
	}
	if p.out, err = filepath.Abs(*out); err != nil {
		return err
	}
	if p.modules, err = publishedModules(p.root); err != nil {
		return err
	}
	return p.make(*tag, *binaries)
}

func (p *plan) make(tag, binaries bool) error {
	if tag && (p.programs != "" || !slices.Equal(p.platforms, platforms)) {
		return errPartial
	}
	if tag {
		if err := p.cleanCheckout(); err != nil {
			return err
		}
		if err := p.newVersion(); err != nil {
			return err
		}
	}
	notes, err := p.notes()
	if err != nil && tag {
		return err
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err, "(a tagged release refuses this)")
	}
	broken, err := p.compatible()
	if err != nil {
		return err
	}
	notes += broken
	tree, err := os.MkdirTemp("", "bigfleet-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree) }()
	for _, part := range []string{"proxy", "bin", "oci", "npm", "charts", "buf"} {
		if err := os.RemoveAll(filepath.Join(p.out, part)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(p.out, 0o755); err != nil {
		return err
	}
	sums := siblingSums{}
	for _, m := range p.modules {
		if err := p.writeModule(m, tree, sums); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		fmt.Printf("%s %s\n", m.path, p.version)
	}
	if err := os.WriteFile(filepath.Join(p.out, "notes.md"), []byte(notes), 0o644); err != nil {
		return err
	}
	if err := p.writeNPM(); err != nil {
		return err
	}
	if err := p.writeBuf(); err != nil {
		return err
	}
	if _, err := layout.Write(filepath.Join(p.out, "oci"), empty.Index); err != nil {
		return err
	}
	if err := p.writeCharts(); err != nil {
		return err
	}
	if binaries {
		if err := p.writePrograms(tree); err != nil {
			return err
		}
	}
	if !tag {
		fmt.Printf("dry run: %s holds the artefacts; -tag makes the release commit and %d tags\n", p.out, len(p.modules)+1)
		return nil
	}
	return p.commitAndTag(tree)
}

// writePrograms writes the binaries, what they are made of, their images and their sums.
func (p *plan) writePrograms(tree string) error {
	if err := p.writeBinaries(tree); err != nil {
		return err
	}
	if err := p.writeSBOMs(); err != nil {
		return err
	}
	if err := writeSums(filepath.Join(p.out, "bin")); err != nil {
		return err
	}
	return p.writeImages()
}

var errPartial = errors.New("a tagged release builds its own programs, for every platform: leave out -platforms and -programs")

var errDirty = errors.New("the checkout has uncommitted changes: commit or stash them, because a release is what is committed")
