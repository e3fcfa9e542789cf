package shard

import (
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/store"
)

// SHARD-3.8: content that was marked when two processes in a row ended is banned for a day; one end may be chance.
func TestContentThatEndsTwoProcessesIsBanned(t *testing.T) {
	db, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at := core.At{Mono: 1, Wall: time.Now().UnixNano()}
	for n, banned := range []int{0, 1} {
		if err := db.Put(bucketSuspect, "abc", codec.Marshal(suspectNote{Processes: int64(n) + 1})); err != nil {
			t.Fatal(err)
		}
		ends, err := suspected(db)
		if err != nil {
			t.Fatal(err)
		}
		if poisoned := loadStarted(db, at, func(string, string, error) {}).Poisoned; len(poisoned) != banned {
			t.Errorf("after end %d: %v banned, %v counted", n+1, poisoned, ends)
		}
	}
	if left := db.Load(bucketSuspect); len(left) != 0 {
		t.Errorf("marks are left: %v", left)
	}
}
