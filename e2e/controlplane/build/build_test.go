package build

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The pinned module files build the versions that the recipes promise.
func TestModuleFilesAgreeWithTheVersions(t *testing.T) {
	for _, r := range recipes() {
		text, err := modules.ReadFile("modules/" + r.name + "/go.mod.txt")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for i := range lines {
			lines[i] = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(lines[i]), "require "), " // indirect")
		}
		if !slices.Contains(lines, r.module+" "+r.version) {
			t.Errorf("%s: go.mod.txt does not require %s %s", r.name, r.module, r.version)
		}
		for _, line := range lines {
			from, to, replaced := strings.Cut(line, " => ")
			if replaced && to != from+" "+stagingVersion {
				t.Errorf("%s: %q does not replace a staging module by %s", r.name, line, stagingVersion)
			}
		}
		for _, p := range r.programs {
			if !strings.Contains(string(text), p.importPath) {
				t.Errorf("%s: go.mod.txt does not name the tool %s", r.name, p.importPath)
			}
		}
	}
}

// Whatever changes the result changes the place in the cache.
func TestKeyCoversEverything(t *testing.T) {
	base := helloRecipe(t)
	variants := map[string]func(*recipe){
		"version":  func(r *recipe) { r.version = "v2.0.0" },
		"programs": func(r *recipe) { r.programs = append(slices.Clone(r.programs), program{"x", "example.com/x"}) },
		"ldflags":  func(r *recipe) { r.ldflags = []string{"-X=a.b=c"} },
		"stages":   func(r *recipe) { r.stages = []string{"x.yaml"} },
		"go.mod":   func(r *recipe) { r.files = helloFiles(t, "go 1.26.0 // changed") },
	}
	seen := map[string]string{}
	add := func(name, goVersion, platform string, r recipe) {
		t.Helper()
		key, err := r.key(goVersion, platform)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(key, " /") {
			t.Errorf("key %q is not a file name", key)
		}
		if other, found := seen[key]; found {
			t.Errorf("%s and %s share the key %s", name, other, key)
		}
		seen[key] = name
	}
	add("base", "go1.26.0", "linux-amd64", base)
	add("go version", "go1.26.1 X:experiment", "linux-amd64", base)
	add("platform", "go1.26.0", "linux-arm64", base)
	for name, change := range variants {
		r := base
		change(&r)
		add(name, "go1.26.0", "linux-amd64", r)
	}
}

// smallBuilder is a builder for programs of a few lines: a disk with little room has enough for them.
func smallBuilder(t *testing.T, c Config) (*builder, error) {
	b, err := newBuilder(t.Context(), c)
	if err == nil {
		b.bytesNeed = 64 << 20
	}
	return b, err
}

// Many callers at once: one builds, all get the same working binary, and later callers do nothing.
func TestOneOfManyCallersBuilds(t *testing.T) {
	cacheDir := t.TempDir()
	progress := &compilerLog{} // any writer that may be used concurrently
	dirs := make([]string, 4)
	var callers sync.WaitGroup
	for i := range dirs {
		callers.Go(func() {
			b, err := smallBuilder(t, Config{CacheDir: cacheDir, Progress: progress})
			if err != nil {
				t.Error(err)
				return
			}
			if dirs[i], err = b.ensure(t.Context(), helloRecipe(t)); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if n := strings.Count(progress.tail(), "compiling"); n != 1 {
		t.Errorf("built %d times, want once:\n%s", n, progress.tail())
	}
	for _, dir := range dirs[1:] {
		if dir != dirs[0] {
			t.Fatalf("different results: %q", dirs)
		}
	}
	for _, binary := range []string{"hello", "bonjour"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dirs[0], binary)).Output()
		if err != nil || string(out) != "hello v1.2.3\n" {
			t.Fatalf("%s says %q, %v; want its version", binary, out, err)
		}
	}
	stages, err := os.ReadFile(filepath.Join(dirs[0], stagesFile))
	if b, a := strings.Index(string(stages), "---\n# stage/b.yaml of example.com/hello v1.2.3\nkind: B\n"), strings.Index(string(stages), "kind: A"); err != nil || b < 0 || a < b {
		t.Fatalf("the stages are %q, %v; want b, then a, each with its origin", stages, err)
	}
	wantEntries(t, cacheDir, filepath.Base(dirs[0]), filepath.Base(dirs[0])+".lock")
}

// A build that fails shows what the compiler said and leaves nothing that looks like a result; neither does one that
// was killed before.
func TestFailedBuildLeavesNoResult(t *testing.T) {
	cacheDir := t.TempDir()
	b, err := smallBuilder(t, Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	r := helloRecipe(t)
	r.programs = []program{{"hello", "example.com/hello/missing"}}
	key, err := r.key(b.goVersion, b.platform)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(cacheDir, key+".work-killed", "output"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = b.ensure(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "build hello v1.2.3") || !strings.Contains(err.Error(), "example.com/hello/missing") {
		t.Fatalf("got %v; want the name of the module and what go said", err)
	}
	wantEntries(t, cacheDir, key+".lock")
}

// A missing prerequisite is named in one line.
func TestMissingPrerequisites(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		b, err := newBuilder(t.Context(), Config{CacheDir: filepath.Join(t.TempDir(), "not", "there", "yet")})
		if err != nil {
			t.Fatal(err)
		}
		b.bytesNeed = 1 << 60
		_, err = b.ensure(t.Context(), helloRecipe(t))
		wantOneLine(t, err, "not enough disk")
	})
	t.Run("go", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := Ensure(t.Context(), Config{CacheDir: t.TempDir()})
		wantOneLine(t, err, "go is not in PATH")
	})
}

// An interrupted caller gets the reason and leaves no result.
func TestCancelledBuild(t *testing.T) {
	cacheDir := t.TempDir()
	b, err := smallBuilder(t, Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.build(ctx, helloRecipe(t), filepath.Join(cacheDir, "result")); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Fatalf("got %v; want context canceled", err)
	}
	wantEntries(t, cacheDir)
}

func wantOneLine(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got %v; want one line with %q", err, want)
	}
}

func wantEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s holds %q, want %q", dir, got, want)
	}
}

// helloRecipe builds the module in testdata/hello: one small file, nothing to download.
func helloRecipe(t *testing.T) recipe {
	t.Helper()
	return recipe{
		name: "hello", module: "example.com/hello", version: "v1.2.3", files: helloFiles(t, "go 1.26.0"),
		programs: []program{{"hello", "example.com/hello/cmd/hello"}, {"bonjour", "example.com/hello/cmd/hello"}},
		ldflags:  []string{"-X=main.version=v1.2.3"},
		stages:   []string{"stage/b.yaml", "stage/a.yaml"},
	}
}

func helloFiles(t *testing.T, goLine string) fstest.MapFS {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("testdata", "hello"))
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"module test", goLine, "require example.com/hello v1.2.3", "replace example.com/hello => " + source, ""}
	return fstest.MapFS{"go.mod.txt": {Data: []byte(strings.Join(lines, "\n"))}, "go.sum.txt": {}}
}
