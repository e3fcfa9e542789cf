package published

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

const repository = "github.com/bigfleet-dev/bigfleet"

// release is one release of the checkout as it is: dir has what `make release` wrote, clone the repository with its tags. Its
// version is a hash of the sources, so the module cache never holds a version twice with different content.
type release struct{ version, dir, clone string }

var author = []string{"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com"}

// shared is where TestMain keeps the releases that several tests use, and what they install.
var shared struct {
	dir         string
	first, next oneRelease
}

// oneRelease is made by the first test that needs it.
type oneRelease struct {
	sync.Mutex
	release
}

func (o *oneRelease) get(t *testing.T, name string, change func(clone string)) release {
	t.Helper()
	o.Lock()
	defer o.Unlock()
	if o.version == "" {
		o.release = makeRelease(t, filepath.Join(shared.dir, "release"+name), name, change)
	}
	return o.release
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bigfleet-published-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func theRelease(t *testing.T) release {
	t.Helper()
	return shared.first.get(t, "1", func(string) {})
}

// theNextRelease differs from the first in what a generated provider takes from the SDK: the library of its chart.
func theNextRelease(t *testing.T) release {
	t.Helper()
	return shared.next.get(t, "2", func(clone string) {
		library := filepath.Join(clone, "sdk", "provider", "template", "library")
		write(t, library, "values.yaml", read(t, library, "values.yaml")+changedInNext)
	})
}

const changedInNext = "# A later release says more.\n"

// bin is where `go install` puts what tests of this package share.
func bin() string { return filepath.Join(shared.dir, "bin") }

// makeRelease releases a clone that holds the checkout with its uncommitted changes and one more.
func makeRelease(t *testing.T, dir, suffix string, change func(clone string)) release {
	t.Helper()
	root := checkout(t)
	diff := run(t, root, nil, "git", "diff", "HEAD", "--binary")
	sum := sha256.Sum256([]byte(run(t, root, nil, "git", "rev-parse", "HEAD") + diff + suffix))
	r := release{version: "v0.0.1-rc." + suffix + "h" + hex.EncodeToString(sum[:6]), dir: filepath.Join(dir, "dist"), clone: filepath.Join(dir, "clone")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, dir, nil, "git", "clone", "--quiet", "--no-local", "file://"+root, r.clone)
	if diff != "" {
		write(t, dir, "diff", diff)
		run(t, r.clone, nil, "git", "apply", "--index", filepath.Join(dir, "diff"))
	}
	change(r.clone)
	write(t, r.clone, "CHANGELOG.md", strings.Replace(read(t, r.clone, "CHANGELOG.md"), "## Unreleased", "## "+r.version, 1))
	run(t, r.clone, author, "git", "commit", "--quiet", "-am", "changelog: "+r.version)
	r.make(t, r.dir, "-binaries=false", "-tag")
	return r
}

// make runs the program of tools/release on the clone.
func (r release) make(t *testing.T, out string, args ...string) {
	t.Helper()
	all := append([]string{"run", ".", "-root", r.clone, "-version", r.version, "-out", out}, args...)
	run(t, filepath.Join(checkout(t), "tools", "release"), append(author, "GOWORK=off"), "go", all...)
}

// env makes the go command use the release, and nothing of the checkout.
func (r release) env(t *testing.T) []string {
	t.Helper()
	upstream := strings.TrimSpace(run(t, t.TempDir(), nil, "go", "env", "GOPROXY"))
	return []string{"GOWORK=off", "GOFLAGS=", "GOPROXY=file://" + filepath.ToSlash(filepath.Join(r.dir, "proxy")) + "," + upstream,
		"GONOSUMDB=" + repository + "/*"}
}

// git makes git find the clone under the address of the repository.
func (r release) git(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "gitconfig", "[url \"file://"+r.clone+"\"]\n\tinsteadOf = https://"+repository+".git\n\tinsteadOf = https://"+repository+"\n[protocol \"file\"]\n\tallow = always\n")
	return []string{"GIT_CONFIG_GLOBAL=" + filepath.Join(dir, "gitconfig")}
}

func checkout(t *testing.T) string {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// run runs a command in dir and returns what it printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
