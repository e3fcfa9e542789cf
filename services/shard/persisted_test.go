package shard

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/store"
)

// SHARD-13.16, 10.8 for files: whatever stands in shard.db (a pause, the ownership view, the journal), a process starts with
// what it can read and a core that was given it does not panic.
func FuzzPersistedState(f *testing.F) {
	for _, v := range []any{core.Pause{ID: "p", Cluster: "red", TTL: 5, Expires: 7}, core.View{Term: 3, Index: 1, PartitionKeys: []string{"z"},
		Owned: []core.DomainRef{{Key: "z", Value: "a"}}}, core.JournalEntry{Machine: "m1"}, core.Lineage{Term: 2, UUID: "u"}, core.Reservation{Move: "x", Machines: []string{"m1"}}} {
		f.Add(codec.Marshal(v))
	}
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2})
	dir := f.TempDir()
	db, err := store.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = db.Close() })
	f.Fuzz(func(t *testing.T, raw []byte) {
		if raw == nil {
			raw = []byte{}
		}
		for _, bucket := range []string{core.BucketPauses, core.BucketRetired, core.BucketForgotten, core.BucketReservations, core.BucketJournal, core.BucketPoison, core.BucketRoom} {
			db.Hint(bucket, "m1", raw)
		}
		for _, key := range []string{keyDryRun, keyLineage, keyView, keyDone, keyDomains} {
			db.Hint(core.BucketControl, key, raw)
		}
		if err := db.Put(core.BucketControl, "unknown", raw); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		at := core.At{Mono: 1, Wall: 1_800_000_000 * core.Second}
		first := loadStarted(db, at, func(string, string, error) {})
		first.Config, first.Epoch = core.Config{ShardID: "s", Providers: []string{"p"}, Coordinated: true}, 1
		c := core.New(nil)
		c.Step(at, first)
		at.Mono += core.Minute
		c.Step(at, core.Tick{})
		if why := c.Broken(); why != "" {
			t.Errorf("broken invariant: %s", why)
		}
	})
}

// OPS-2.3: any bytes as --config, and any word as the value of a flag, give an error or a setting, and never a panic.
func FuzzConfigFile(f *testing.F) {
	for _, s := range []string{"", "provider-addr: a:1\n", "provider-addr: [a=h:1, b=h:2]\nid: x\n", "id: {a: b}", "- 1\n- 2", "max-rollup-bytes: 12QiB", "&a [*a]",
		"cycle-interval: -1s", "a: b: c", "\x00", "id: !!binary x", "reclaim-cap-fraction: .nan"} {
		f.Add([]byte(s), "x=y:1")
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, raw []byte, word string) {
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := NewCommand()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs([]string{"--config", path, "--provider-addr=" + word, "--print-config"})
		_ = cmd.ExecuteContext(t.Context())
		_, _ = ParseProviders([]string{word})
	})
}
