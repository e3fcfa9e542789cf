package crash

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for _, dir := range built {
			_ = os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// built are the directories of all programs, which the whole run uses; building guards them.
var (
	building sync.Mutex
	built    []string
)

// edits put the points into a copy of the sources. An edit whose text is not there any more fails the build.
var edits = map[string][][2]string{
	"../epoch/epoch.go": {
		{`"errors"`, `"errors"` + "\n\t" + `"github.com/bigfleet-dev/bigfleet/services/shard/internal/failpoint"`},
		{`tmp, err := os.OpenFile(`, `failpoint.Hit("epoch: create"); tmp, err := os.OpenFile(`},
		{`tmp.WriteString(format(n))`, `failpoint.Write(tmp, "epoch: write", []byte(format(n)))`},
		{`err = tmp.Sync()`, `err = tmp.Sync(); failpoint.Hit("epoch: synced")`},
		{`err = os.Rename(path+".tmp", path)`, `failpoint.Hit("epoch: rename"); err = os.Rename(path+".tmp", path); failpoint.Hit("epoch: renamed")`},
		{`return d.Sync()`, `err = d.Sync(); failpoint.Hit("epoch: directory synced"); return err`},
	},
	"../audit/log.go": {
		{`"context"`, `"context"` + "\n\t" + `"github.com/bigfleet-dev/bigfleet/services/shard/internal/failpoint"`},
		{`if err := os.MkdirAll(l.cfg.Dir, 0o700)`, `failpoint.Hit("log: directory"); if err := os.MkdirAll(l.cfg.Dir, 0o700)`},
		{`f, err := os.OpenFile(filepath.Join(`, `failpoint.Hit("log: create"); f, err := os.OpenFile(filepath.Join(`},
		{`n, err := l.file.Write(b)`, `n, err := failpoint.Write(l.file, "log: write", b)`},
		{`if err := l.file.Sync(); err != nil {`, `failpoint.Hit("log: sync"); if err := l.file.Sync(); err != nil {`},
	},
	"../store/file.go": {
		{`"errors"`, `"errors"` + "\n\t" + `"github.com/bigfleet-dev/bigfleet/services/shard/internal/failpoint"`},
		{`if _, err := f.f.WriteAt(b, f.end); err != nil {
		f.broken`, `if _, err := failpoint.WriteAt(f.f, "store: append", b, f.end); err != nil {
		f.broken`},
		{`if err := f.f.Sync(); err != nil {`, `failpoint.Hit("store: sync"); if err := f.f.Sync(); err != nil {`},
		{`	f.seal()`, `	failpoint.Hit("store: synced"); f.seal()`},
		{`_, err = tmp.Write(b)`, `_, err = failpoint.Write(tmp, "store: rewrite", b)`},
		{`err = os.Rename(f.path+".tmp", f.path)`, `failpoint.Hit("store: rename"); err = os.Rename(f.path+".tmp", f.path); failpoint.Hit("store: renamed")`},
	},
}

var (
	plain   = sync.OnceValues(func() (string, error) { return buildWith(nil, false) })
	pointed = sync.OnceValues(func() (string, error) { return buildWith(edits, true) })
)

// program builds the shard once per test run, as it is or with the points.
func program(t *testing.T, points bool) string {
	t.Helper()
	f := plain
	if points {
		f = pointed
	}
	path, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buildWith builds the shard with edits of its sources, which stay as they are, and with package failpoint if it is wanted.
func buildWith(edits map[string][][2]string, failpoint bool) (string, error) {
	dir, err := os.MkdirTemp("", "bigfleet-crash-")
	if err != nil {
		return "", err
	}
	building.Lock()
	built = append(built, dir)
	building.Unlock()
	if err := os.Chmod(dir, 0o755); err != nil { // another user runs it
		return "", err
	}
	args := []string{"build", "-o", filepath.Join(dir, "bigfleet-shard")}
	if len(edits) > 0 {
		overlay, err := overlayFile(dir, edits, failpoint)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, "../../cmd/bigfleet-shard")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &buildError{string(out), err}
	}
	return filepath.Join(dir, "bigfleet-shard"), nil
}

type buildError struct {
	out string
	err error
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.out }

func overlayFile(dir string, edits map[string][][2]string, failpoint bool) (string, error) {
	replace := map[string]string{}
	put := func(source, name, text string) error {
		path, err := filepath.Abs(source)
		if err != nil {
			return err
		}
		replace[path] = filepath.Join(dir, name)
		return os.WriteFile(replace[path], []byte(text), 0o600)
	}
	for source, list := range edits {
		raw, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		text := string(raw)
		for _, e := range list {
			if !strings.Contains(text, e[0]) {
				return "", &buildError{source + " has no " + e[0] + " any more; say again where its points are", os.ErrNotExist}
			}
			text = strings.Replace(text, e[0], e[1], 1)
		}
		if err := put(source, strings.ReplaceAll(source[3:], "/", "-"), text); err != nil {
			return "", err
		}
	}
	if failpoint {
		raw, err := os.ReadFile("testdata/failpoint.go.txt")
		if err != nil {
			return "", err
		}
		if err := put("../failpoint/failpoint.go", "failpoint.go", string(raw)); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}
