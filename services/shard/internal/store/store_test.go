package store

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// SHARD-5.4: what Put stored is there after a restart; a nil value deletes.
func TestPutSurvives(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range [][2]string{{"a", "1"}, {"b", "2"}, {"a", "3"}} {
		if err := s.Put("pauses", p[0], []byte(p[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put("pauses", "b", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := s.Load("pauses")
	if len(got) != 1 || string(got["a"]) != "3" {
		t.Fatalf("%v", got)
	}
	if got := s.Load("never"); len(got) != 0 {
		t.Fatalf("%v", got)
	}
}

// SHARD-13.15: hints are written soon, coalesced by key, and at the latest by Close.
func TestHintsAreWrittenTogether(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		s.Hint("journal", "m1", []byte("old"))
		s.Hint("journal", "m1", []byte("new"))
		s.Hint("journal", "m2", []byte("x"))
		s.Hint("journal", "m2", nil)
		time.Sleep(time.Second)
		synctest.Wait()
		got := s.Load("journal")
		if len(got) != 1 || string(got["m1"]) != "new" {
			t.Fatalf("%v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		s.Hint("journal", "m3", []byte("late"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Load("journal"); string(got["m3"]) != "late" {
		t.Fatalf("%v", got)
	}
}

// SHARD-3.4: a second holder of the data directory is refused.
func TestSecondHolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(dir); err == nil || !strings.Contains(err.Error(), "another shard process") {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	l, err = Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}

// SHARD-5.4: what has to be on the disk before anybody hears of it is not overwritten by a hint of the same key that is older
// and was still waiting. A view that a shard has acknowledged would go back.
func TestHintDoesNotOverwriteWhatWasPutAfterIt(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Hint("control", "view", []byte("old"))
	if err := s.Put("control", "view", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := s.Load("control"); string(got["view"]) != "new" {
		t.Fatalf("%q", got)
	}
	s.Hint("control", "view", []byte("newest"))
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := s.Load("control"); string(got["view"]) != "newest" {
		t.Fatalf("%q", got)
	}
}

// SHARD-5.4: nor by a hint that a failed write gives back.
func TestFailedHintsDoNotComeBackOverWhatWasPut(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	broken := place{"", "no bucket has this name"}
	for range 200 {
		s.Hint(broken.bucket, broken.key, []byte("x"))
		s.Hint("control", "view", []byte("old"))
		flushed, stored := make(chan error, 1), make(chan error, 1)
		go func() { flushed <- s.Flush() }() // before or after Put: both orders must end well
		go func() { stored <- s.Put("control", "view", []byte("new")) }()
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
		if err := <-flushed; err == nil {
			t.Fatal("a hint for no bucket was written")
		}
		s.take(broken)
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := s.Load("control"); string(got["view"]) != "new" {
			t.Fatalf("%q", got)
		}
	}
}

// SHARD-13.15: hints that could not be written wait, all of them, with the newest value of each.
func TestHintsWaitForADiskThatComesBack(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	broken := place{"", "no bucket has this name"}
	s.Hint(broken.bucket, broken.key, []byte("x"))
	s.Hint("journal", "m1", []byte("old"))
	s.Hint("journal", "m2", []byte("kept"))
	if err := s.Flush(); err == nil {
		t.Fatal("a hint for no bucket was written")
	}
	s.Hint("journal", "m1", []byte("new"))
	if err := s.Put("", "x", []byte("x")); err == nil {
		t.Fatal("a value for no bucket was written")
	}
	s.take(broken)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := s.Load("journal"); len(got) != 2 || string(got["m1"]) != "new" || string(got["m2"]) != "kept" {
		t.Fatalf("%q", got)
	}
}
