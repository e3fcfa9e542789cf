package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
)

// A failed test prints the end of each log, says which component was down, and keeps the whole logs where CI wants
// them; the control plane is stopped all the same.
func TestFailedTestShowsTheLogs(t *testing.T) {
	keep := t.TempDir()
	t.Setenv(controlplane.LogsEnv, keep)
	inner := &recorder{TB: t}
	cp := controlplane.StartT(inner, controlplane.Config{
		Name: "small",
		Omit: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok},
	})
	dir := cp.Dir()
	cp.Component(controlplane.Etcd).Kill()
	inner.failed = true
	inner.end()

	for _, want := range []string{"small: etcd (not running)", "small: kube-apiserver (running)", "--unsafe-no-fsync"} {
		if !strings.Contains(inner.log.String(), want) {
			t.Errorf("the failed test does not show %q:\n%s", want, inner.log.String())
		}
	}
	kept, err := filepath.Glob(filepath.Join(keep, t.Name(), "small", "*.log"))
	if err != nil || len(kept) != 2 {
		t.Errorf("kept %q, %v; want the logs of etcd and kube-apiserver", kept, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
}

// A start that is given up, by a time limit or an interrupt, says why and leaves nothing.
func TestStartIsCancelled(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() { // when a kube-apiserver is on its way, seconds before it is ready
		for ctx.Err() == nil {
			if logs, _ := filepath.Glob(filepath.Join(tmp, "*", "logs", "kube-apiserver.log")); len(logs) > 0 {
				cancel(errors.New("the user pressed Ctrl-C"))
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, err := controlplane.StartAll(ctx, controlplane.Config{Name: "one"}, controlplane.Config{Name: "two"})
	if err == nil || !strings.Contains(err.Error(), "one") || !strings.Contains(err.Error(), "Ctrl-C") {
		t.Fatalf("got %v; want the name and the cause", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("%d files left behind, %v", len(left), err)
	}
	wantNoProcess(t, tmp)
}

// recorder is a test that fails without failing the test around it.
type recorder struct {
	testing.TB
	failed   bool
	log      strings.Builder
	cleanups []func()
}

func (r *recorder) Failed() bool               { return r.failed }
func (r *recorder) Cleanup(f func())           { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Log(args ...any)            { fmt.Fprintln(&r.log, args...) }
func (r *recorder) Logf(f string, args ...any) { fmt.Fprintf(&r.log, f+"\n", args...) }

func (r *recorder) end() {
	for _, f := range r.cleanups {
		f()
	}
}
