package server

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// COORD-16.10: a flipped bit in the audit file never makes its end look newer than it is, which would skip records; a torn line is ended.
func TestADamagedAuditFileSkipsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var whole []byte
	for n := range uint64(3) {
		l, err := newAuditLine("g", 97+n, []byte(`{"method":  "BindCluster", "reason": "a < b & c\u2028", "sequence":"97"}`))
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 { // of an earlier build
			l.Sum = ""
		}
		line, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(append(whole, line...), '\n')
	}
	end := func(text []byte) written {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		last, err := lastWritten(file)
		if err != nil {
			t.Fatal(err)
		}
		return last
	}
	if got := end(whole); got != (written{"g", 99}) {
		t.Fatalf("%+v", got)
	}
	second := bytes.IndexByte(whole, '\n') + 1
	for i := 8 * second; i < 8*len(whole); i++ {
		text := bytes.Clone(whole)
		text[i/8] ^= 1 << (i % 8)
		if got := end(text); got.sequence > 99 || got.group != "g" {
			t.Fatalf("bit %d: the file seems to end with %+v", i, got)
		}
	}
	if got := end(whole[:len(whole)-5]); got.sequence != 98 {
		t.Errorf("torn: %+v", got)
	}
	if text, err := os.ReadFile(path); err != nil || text[len(text)-1] != '\n' {
		t.Errorf("the torn line is not ended: %v", err)
	}
}
