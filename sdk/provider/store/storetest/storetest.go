// Package storetest shows whether an implementation of store.Store keeps what the interface promises.
//
// Run takes a function that opens the same place again and again. It is for authors of stores; it never runs in a
// provider.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"pgregory.net/rapid"
)

// Run tests a store. open must give an empty store at the first call of each place, and the same place afterwards.
func Run(t *testing.T, open func(t testing.TB, place string) (store.Store, error)) {
	t.Run("batches", func(t *testing.T) { batches(t, open) })
	t.Run("order", func(t *testing.T) { order(t, open) })
	t.Run("visit", func(t *testing.T) { visit(t, open) })
	t.Run("bytes", func(t *testing.T) { anyBytes(t, open) })
}

type opener = func(t testing.TB, place string) (store.Store, error)

func must(t testing.TB, open opener, place string) store.Store {
	t.Helper()
	s, err := open(t, place)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t testing.TB, s store.Store) map[string]string {
	t.Helper()
	got := map[string]string{}
	if err := s.Load(func(table store.Table, k, v []byte) error {
		key := table.String() + "/" + string(k)
		if _, twice := got[key]; twice {
			return fmt.Errorf("%q is visited twice", key)
		}
		got[key] = string(v)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// batches compares random batches, with reopening in between, with a map.
func batches(t *testing.T, open opener) {
	place := 0
	rapid.Check(t, func(rt *rapid.T) {
		place++
		name := fmt.Sprint("batches", place)
		s := must(t, open, name)
		defer func() { _ = s.Close() }()
		want := map[string]string{}
		for range rapid.IntRange(1, 15).Draw(rt, "batches") {
			var batch []store.Write
			for range rapid.IntRange(0, 10).Draw(rt, "writes") {
				w := store.Write{
					Table: rapid.SampledFrom(store.Tables()).Draw(rt, "table"),
					Key:   []byte(rapid.SampledFrom([]string{"a", "b", "\x00", "a/b", "\xff"}).Draw(rt, "key")),
				}
				key := w.Table.String() + "/" + string(w.Key)
				if rapid.Bool().Draw(rt, "set") {
					w.Value = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "value")
					want[key] = string(w.Value)
				} else {
					delete(want, key)
				}
				batch = append(batch, w)
			}
			if err := s.Commit(batch); err != nil {
				rt.Fatal(err)
			}
			for i := range batch { // it may keep neither
				clear(batch[i].Key)
				clear(batch[i].Value)
			}
			if s.Durable() && rapid.IntRange(0, 3).Draw(rt, "reopen") == 0 {
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				s = must(t, open, name)
			}
			got := load(t, s)
			for k, v := range want {
				if g, ok := got[k]; !ok || g != v {
					rt.Fatalf("%q is %q (%v), want %q", k, g, ok, v)
				}
			}
			if len(got) != len(want) {
				rt.Fatalf("%d keys, want %d", len(got), len(want))
			}
		}
	})
}

func order(t *testing.T, open opener) {
	s := must(t, open, "order")
	defer func() { _ = s.Close() }()
	if err := s.Commit([]store.Write{
		{Table: store.Removals, Key: []byte("r"), Value: []byte{}}, {Table: store.Machines, Key: []byte("m"), Value: []byte("1")},
		{Table: store.Meta, Key: []byte("x"), Value: []byte("1")},
	}); err != nil {
		t.Fatal(err)
	}
	var tables []store.Table
	if err := s.Load(func(table store.Table, _, _ []byte) error { tables = append(tables, table); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(tables) != 3 || tables[0] != store.Meta {
		t.Errorf("Load visits %v; Meta comes first, and an empty value is a value", tables)
	}
}

func visit(t *testing.T, open opener) {
	s := must(t, open, "visit")
	defer func() { _ = s.Close() }()
	if err := s.Commit([]store.Write{{Table: store.Meta, Key: []byte("a"), Value: []byte("1")}, {Table: store.Meta, Key: []byte("b"), Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	stop, visits := errors.New("stop"), 0
	if err := s.Load(func(store.Table, []byte, []byte) error { visits++; return stop }); !errors.Is(err, stop) || visits != 1 {
		t.Errorf("an error of visit must end Load: %v after %d visits", err, visits)
	}
}

func anyBytes(t *testing.T, open opener) {
	s := must(t, open, "bytes")
	defer func() { _ = s.Close() }()
	key, value := bytes.Repeat([]byte("k"), 6<<10), bytes.Repeat([]byte{0, 1, 255}, 5<<20/3)
	if err := s.Commit([]store.Write{{Table: store.Machines, Key: key, Value: value}}); err != nil {
		t.Fatal(err)
	}
	if got := load(t, s)["machines/"+string(key)]; got != string(value) {
		t.Errorf("a long value came back with %d bytes, want %d", len(got), len(value))
	}
	if s.Describe() == "" {
		t.Error("Describe is empty")
	}
}
