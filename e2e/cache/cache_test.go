package cache_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/bigfleet-dev/bigfleet/e2e/cache"
)

func TestRootFollowsTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(cache.Env, dir)
	got, err := cache.Root()
	if err != nil || got != dir {
		t.Fatalf("Root() = %q, %v; want %q", got, err, dir)
	}
	t.Setenv(cache.Env, "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := cache.Root(); err == nil {
		t.Fatal("Root() succeeds without a home directory; want an error that names " + cache.Env)
	}
}

// One holder at a time; a waiter is notified once, gives up with its context, and gets the lock after release.
func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "entry.lock")
	release, err := cache.Lock(t.Context(), path, func() { t.Error("waited for a lock that is free") })
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	if _, err := cache.Lock(ctx, path, func() { calls++; cancel() }); !errors.Is(err, context.Canceled) {
		t.Fatalf("second Lock: %v; want context canceled", err)
	}
	if calls != 1 {
		t.Fatalf("waiting was called %d times, want once", calls)
	}

	got := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		release, err := cache.Lock(t.Context(), path, func() { close(waiting) })
		if err == nil {
			release()
		}
		got <- err
	}()
	<-waiting
	release()
	if err := <-got; err != nil {
		t.Fatalf("Lock after release: %v", err)
	}
}
