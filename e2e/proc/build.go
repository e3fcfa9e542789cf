package proc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/cache"
)

// interruptPatience is how long an interrupted go command may take: a compiler finishes its package first.
const interruptPatience = 30 * time.Second

// Build compiles the main package in dir, a slash-separated path from the root of the repository such as
// "services/shard/cmd/bigfleet-shard", and returns the path of the binary. flags go to "go build" ("-race", "-tags=x").
//
// The binary lies in the harness cache, in a place of its own for each checkout, package and set of flags, so that
// "go build" finds it up to date when nothing changed: a second call costs the check of the sources, not the link.
// The package is built from its own directory, hence with go.work where there is one and with its own go.mod
// otherwise.
func Build(ctx context.Context, dir string, flags ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, filepath.FromSlash(dir))
	if _, err := os.Stat(source); err != nil {
		return "", fmt.Errorf("no package to build: %w", err)
	}
	binary, err := binaryPath(root, dir, flags)
	if err != nil {
		return "", err
	}
	release, err := cache.Lock(ctx, binary+".lock", nil)
	if err != nil {
		return "", err
	}
	defer release()

	args := slices.Concat([]string{"build", "-o", binary}, flags, []string{"."})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	defer Isolate(cmd, syscall.SIGINT)()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that go removes its temporary files
	cmd.WaitDelay = interruptPatience
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build of %s: %w\n%s", dir, err, bytes.TrimSpace(output.Bytes()))
	}
	return binary, nil
}

// BuildT is Build for tests: it fails t instead of returning an error.
func BuildT(t testing.TB, dir string, flags ...string) string {
	t.Helper()
	binary, err := Build(t.Context(), dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func binaryPath(root, dir string, flags []string) (string, error) {
	cacheRoot, err := cache.Root()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(slices.Concat([]string{root, dir}, flags), "\x00")))
	return filepath.Join(cacheRoot, "bin", hex.EncodeToString(key[:6]), filepath.Base(dir)), nil
}

// Root returns the root of the repository that holds the working directory: the nearest parent with e2e/go.mod.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "e2e", "go.mod"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside a checkout of BigFleet (no parent has e2e/go.mod)", start)
		}
	}
}
