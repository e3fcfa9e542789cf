package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

const (
	// coldBuildBytes is the free space a cold build needs where the caches are: 3.7 GB of compiler cache, 1 GB of
	// modules and 0.4 GB of binaries, measured on linux/amd64, and temporary files.
	coldBuildBytes = 6 << 30

	// Directories of a build in progress.
	sourceDir       = "source" // go.mod and go.sum
	compilerTempDir = "tmp"

	progressEvery     = 15 * time.Second
	interruptPatience = 30 * time.Second // a compiler finishes its package first
)

// buildFlags applies to every recipe.
func buildFlags() []string { return []string{"-trimpath", "-buildvcs=false", "-mod=readonly"} }

// buildEnv applies to every recipe. Static binaries need no C compiler on the machine; an inherited workspace or
// GOFLAGS must not change what is built.
func buildEnv() []string { return []string{"GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0"} }

// toolchain is what "go env -json" says about the go command in PATH.
type toolchain struct{ GOVERSION, GOOS, GOARCH, GOCACHE, GOMODCACHE string }

func goEnv(ctx context.Context) (toolchain, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return toolchain{}, errors.New("go is not in PATH: install Go 1.26 or newer (https://go.dev/dl)")
	}
	var t toolchain
	cmd := exec.CommandContext(ctx, "go", "env", "-json", "GOVERSION", "GOOS", "GOARCH", "GOCACHE", "GOMODCACHE")
	cmd.Dir = os.TempDir() // outside any module, whose toolchain line could switch the version
	cmd.Env = append(os.Environ(), buildEnv()...)
	output, err := cmd.Output()
	if ctx.Err() != nil {
		return toolchain{}, context.Cause(ctx)
	}
	if err != nil {
		return toolchain{}, fmt.Errorf("go env: %w", err)
	}
	return t, json.Unmarshal(output, &t)
}

// build makes dir appear, complete, by renaming it into place. The caller holds the lock of dir.
func (b *builder) build(ctx context.Context, r recipe, dir string) error {
	began := time.Now()
	if err := b.checkSpace(); err != nil {
		return err
	}
	work, err := b.workDir(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	source, output := filepath.Join(work, sourceDir), filepath.Join(work, "output")
	if err := writeModule(r.files, source); err != nil {
		return err
	}
	for _, dir := range []string{output, filepath.Join(work, compilerTempDir)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}

	b.say("%s: compiling %s (once; later runs find it in %s)", r, strings.Join(r.binaries(), ", "), dir)
	if err := b.compile(ctx, r, source, output); err != nil {
		return err
	}
	if len(r.stages) > 0 {
		if err := copyStages(ctx, r, source, filepath.Join(output, stagesFile)); err != nil {
			return err
		}
	}
	if err := os.Rename(output, dir); err != nil {
		return err
	}
	b.say("%s: done in %s", r, time.Since(began).Round(time.Second))
	return nil
}

// workDir makes a directory next to dir, so that the last step is a rename on one file system, and removes those of
// builds that were killed.
func (b *builder) workDir(dir string) (string, error) {
	stale, err := filepath.Glob(dir + ".work-*")
	if err != nil {
		return "", err
	}
	for _, path := range stale {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".work-")
}

func writeModule(files fs.FS, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := fs.ReadFile(files, name+".txt")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compile builds the programs of r. All but those whose binary has another name than their package go into one "go
// build", which shares the work and uses all cores.
func (b *builder) compile(ctx context.Context, r recipe, source, output string) error {
	var together []string
	for _, p := range r.programs {
		if p.binary == p.importPath[strings.LastIndex(p.importPath, "/")+1:] {
			together = append(together, p.importPath)
			continue
		}
		if err := b.goBuild(ctx, r, source, filepath.Join(output, p.binary), p.importPath); err != nil {
			return err
		}
	}
	if len(together) == 0 {
		return nil
	}
	return b.goBuild(ctx, r, source, output+string(filepath.Separator), together...)
}

func (b *builder) goBuild(ctx context.Context, r recipe, source, output string, packages ...string) error {
	args := append([]string{"build", "-v", "-o", output, "-ldflags=" + r.linkFlags()}, buildFlags()...)
	log := &compilerLog{}
	cmd := goCommand(ctx, source, append(args, packages...)...)
	cmd.Stderr = log
	stop := b.reportEvery(progressEvery, r, log)
	// go must get one signal: a second, such as that which a terminal sends on Ctrl-C, ends it on the spot.
	release := proc.Isolate(cmd, syscall.SIGINT)
	err := cmd.Run()
	release()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // compilers that an interrupted go left to finish
	}
	stop()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("go build: %w\n%s", err, log.tail())
}

// reportEvery says how far the compiler is until stop is called.
func (b *builder) reportEvery(period time.Duration, r recipe, log *compilerLog) (stop func()) {
	began, done := time.Now(), make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				b.say("%s: %d packages compiled in %s", r, log.packages(), time.Since(began).Round(time.Second))
			}
		}
	})
	return func() {
		close(done)
		reporter.Wait()
	}
}

// copyStages joins the stage files of the module into one YAML file. They come from the module at build time, so that
// they always match the binary.
func copyStages(ctx context.Context, r recipe, source, target string) error {
	moduleDir, err := goCommand(ctx, source, "list", "-m", "-f={{.Dir}}", r.module).Output()
	if err != nil {
		return fmt.Errorf("go list -m %s: %w", r.module, err)
	}
	var all bytes.Buffer
	for _, stage := range r.stages {
		content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(moduleDir)), filepath.FromSlash(stage)))
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "---\n# %s of %s %s\n%s\n", stage, r.module, r.version, bytes.TrimSpace(content))
	}
	return os.WriteFile(target, all.Bytes(), 0o644)
}

// goCommand runs go in source, a directory of workDir. Its temporary files, a gigabyte, go next to source, so that they
// are removed with it however the command ends.
func goCommand(ctx context.Context, source string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), buildEnv()...)
	cmd.Env = append(cmd.Env, "GOTMPDIR="+filepath.Join(filepath.Dir(source), compilerTempDir))
	// An interrupted go command stops its compilers and cleans up.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptPatience
	return cmd
}

func (r recipe) binaries() []string {
	names := make([]string, 0, len(r.programs))
	for _, p := range r.programs {
		names = append(names, p.binary)
	}
	return names
}
