package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// COORD-16.10: a flipped bit in the audit file never makes its end look newer than it is, which would skip records, and is never silent; a torn line is ended.
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
	end := func(text []byte) (written, string) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckAuditFile(path); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var said bytes.Buffer
		last, err := (&Server{config: Config{Log: slog.New(slog.NewTextHandler(&said, nil))}}).openAudits(file, path)
		if err != nil {
			t.Fatal(err)
		}
		return last, said.String()
	}
	if got, said := end(whole); got != (written{"g", 99}) || said != "" {
		t.Fatalf("%+v %s", got, said)
	}
	second := bytes.IndexByte(whole, '\n') + 1
	third := second + bytes.IndexByte(whole[second:], '\n') + 1
	for i := 8 * second; i < 8*len(whole); i++ {
		text := bytes.Clone(whole)
		text[i/8] ^= 1 << (i % 8)
		got, said := end(text)
		want, lost := written{"g", 99}, "records_lost=1"
		if i >= 8*third {
			want.sequence, lost = 98, "records_lost=0" // 99 comes again
		} else if i/8 == third-1 {
			want.sequence, lost = 97, "records_lost=0" // two lines have become one
		}
		if got != want || !strings.Contains(said, path) || !strings.Contains(said, lost) {
			t.Fatalf("bit %d: the file seems to end with %+v, want %+v and %s: %s", i, got, want, lost, said)
		}
	}
	for cut := range len(whole) - 1 {
		got, said := end(whole[:cut])
		want, torn := uint64(0), !slices.Contains([]int{0, second - 1, second, third - 1, third}, cut)
		if cut >= second-1 {
			want = 97
		}
		if cut >= third-1 {
			want = 98
		}
		if got.sequence != want || torn != strings.Contains(said, "lines=1") {
			t.Errorf("cut after %d bytes: %+v, want %d: %s", cut, got, want, said)
		}
		if text, err := os.ReadFile(path); err != nil || len(text) > 0 && text[len(text)-1] != '\n' {
			t.Errorf("the torn line is not ended: %v", err)
		}
	}
}

// What cannot hold audit records is refused at the start with what to do, and nothing is written to it.
func TestWhatIsNoAuditFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"root:x:0:0:root:/root:/bin/bash\n", "\x00\x01\x02", "{}\n", `{"sequence":"1"}`, strings.Repeat("x", lineMax+5)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckAuditFile(path); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if err := CheckAuditFile(dir); err == nil || !strings.Contains(err.Error(), "is a directory: name a file in it") {
		t.Error(err)
	}
	if err := CheckAuditFile(os.DevNull); err == nil || !strings.Contains(err.Error(), "name another one") {
		t.Error(err)
	}
	for _, text := range []string{"", "{", `{"group":`, `{"group":"g","seq`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckAuditFile(path); err != nil {
			t.Errorf("%q, which a crash may leave: %v", text, err)
		}
	}
	if err := CheckAuditFile(filepath.Join(dir, "missing", "file")); err != nil {
		t.Errorf("a directory that may come: %v", err)
	}
}
