// Package template writes the start of a new provider: a Go module that builds, runs and passes the conformance suite with
// its simulated cloud before a line of it was changed, with Dockerfile, Helm chart and CI file.
//
// What it writes belongs to its author: nothing is read back, nothing is generated twice, and no file of BigFleet has to
// name the new provider. The author writes the client of the cloud in dial.go and adapts backend.go; docs/providers.md
// leads through it. `bigfleet provider init` is this package with flags.
//
// The chart stands on a library chart, which is written beside it, so that helm fetches nothing; library/ is its source, and
// the charts of our own providers in deploy/charts link to it. Chart keeps it and the schema of the values in step.
//
// It runs no command and fetches nothing. Start at Write.
package template

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

//go:embed all:files all:library
var files embed.FS

// Params say what to write.
type Params struct {
	// Name of the provider: begins every machine id. Lower-case letters, digits and hyphens, at most 30 characters.
	Name string
	// Module is the Go module path. Default example.com/bigfleet-provider-NAME.
	Module string
	// Dir is where to write; it must be empty or not there. Default the name.
	Dir string
	// SDKVersion is the version of sdk/provider to require. Default v0.0.0, which only a Checkout can serve.
	SDKVersion string
	// Checkout is a directory with BigFleet's source, which then stands in for the module registry through replace lines.
	Checkout string
}

// view is what the files see.
type view struct {
	Params
	SDK     string // module path of the SDK
	Root    string // of the checkout, absolute
	Replace []replacement
}

// replacement is a module that a checkout serves; Path is that of Dir in it.
type replacement struct{ Module, Path, Dir string }

const prefix = "github.com/bigfleet-dev/bigfleet/"

// siblings are the modules that a provider reaches.
var siblings = [...]string{"gen/go", "sdk/identity", "sdk/otlp", "sdk/provider", "sdk/wal"}

var goodName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$`)

// Write writes the files and returns their names, relative to the directory.
func Write(p Params) (dir string, written []string, err error) {
	v, err := p.view()
	if err != nil {
		return "", nil, err
	}
	entries, err := os.ReadDir(v.Dir)
	switch {
	case err == nil && len(entries) > 0:
		return "", nil, fmt.Errorf("%s is not empty: choose another directory", v.Dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", nil, err
	}
	all, err := v.files()
	if err != nil {
		return "", nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		file := filepath.Join(v.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return v.Dir, written, err
		}
		if err := os.WriteFile(file, all[name], 0o644); err != nil { //nolint:gosec // source code, readable for all
			return v.Dir, written, err
		}
		written = append(written, name)
	}
	return v.Dir, written, nil
}

// files is everything that is written, by name.
func (v view) files() (map[string][]byte, error) {
	all := map[string][]byte{}
	chart, err := v.chart()
	if err != nil {
		return nil, err
	}
	for name, text := range chart {
		all["chart/"+name] = text
	}
	return all, fs.WalkDir(files, "files", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[target(path)], err = render(path, v)
		return err
	})
}

func (p Params) view() (view, error) {
	if !goodName.MatchString(p.Name) {
		return view{}, fmt.Errorf("%q is not a provider name: use at most 30 lower-case letters, digits and hyphens, and begin with a letter", p.Name)
	}
	if p.Module == "" {
		p.Module = "example.com/bigfleet-provider-" + p.Name
	}
	if strings.ContainsAny(p.Module, " \t\n\"'`\\") {
		return view{}, fmt.Errorf("%q is not a module path", p.Module)
	}
	if p.Dir == "" {
		p.Dir = p.Name
	}
	if p.SDKVersion == "" {
		p.SDKVersion = "v0.0.0"
	}
	v := view{Params: p, SDK: prefix + "sdk/provider"}
	if p.Checkout == "" {
		return v, nil
	}
	root, err := filepath.Abs(p.Checkout)
	if err != nil {
		return view{}, err
	}
	v.Root = root
	for _, m := range siblings {
		dir := filepath.Join(root, filepath.FromSlash(m))
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			return view{}, fmt.Errorf("%s does not contain BigFleet's source: %w", p.Checkout, err)
		}
		v.Replace = append(v.Replace, replacement{prefix + m, m, dir})
	}
	return v, nil
}

// target is the name of the written file: .tmpl keeps the tools of this repository away from them, dot- keeps embed from
// leaving hidden ones out.
func target(path string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(path, "files/"), ".tmpl")
	return strings.ReplaceAll(name, "dot-", ".")
}

// render uses [[ and ]], because charts are full of the usual braces.
func render(path string, v view) ([]byte, error) {
	text, err := files.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := template.New(path).Delims("[[", "]]").Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, v)
	return out.Bytes(), err
}
