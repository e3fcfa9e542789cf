package penalty

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// OP-15.17: a file that cannot be used is an error at the start; after that the last good one stays.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "defaults.yaml")
	for _, bad := range []string{"", "a: {interruptionPenalty: lots}", "a: {penalty: 1}", "a: {interruptionPenalty: -1}", "[1]"} {
		if bad == "" { // the file is not there
			if _, err := Load(path); err == nil {
				t.Error("a missing file is no error")
			}
			continue
		}
		write(t, path, bad)
		if _, err := Load(path); err == nil {
			t.Errorf("%s is no error", bad)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		write(t, path, `batch: {interruptionPenalty: "64"}`)
		d, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		changes, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			_ = d.Watch(ctx, slog.New(slog.DiscardHandler), func() { changes++ })
		}()
		want := func(what, interruption string, changed int) {
			t.Helper()
			time.Sleep(checkEvery + time.Second)
			synctest.Wait()
			got := d.Class("batch")
			if got.Interruption == nil || got.Interruption.String() != interruption || got.Reclamation != nil || changes != changed {
				t.Errorf("%s: %v after %d changes, want %s after %d", what, got, changes, interruption, changed)
			}
		}
		want("at the start", "64", 0)
		write(t, path, `batch: {interruptionPenalty: 500m}`)
		want("changed", "500m", 1)
		write(t, path, `batch: {interruptionPenalty: `)
		want("broken", "500m", 1)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		want("gone", "500m", 1)
		write(t, path, `batch: {interruptionPenalty: "1"}`)
		want("repaired", "1", 2)
		if d.Class("web").Interruption != nil {
			t.Error("an unknown class has a penalty")
		}
		stop()
		<-done
	})
}
