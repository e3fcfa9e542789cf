package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What another party writes cannot steer a terminal, whole or in pieces, and JSON still reads as it was sent.
func TestSafe(t *testing.T) {
	const evil = "ok\x1b[2J\x1b]0;title\a\r\u202egnp\u2066\u009b31m\x7f é…"
	for size := 1; size <= len(evil); size++ {
		var out bytes.Buffer
		w := Safe(&out)
		for i := 0; i < len(evil); i += size {
			if _, err := w.Write([]byte(evil[i:min(i+size, len(evil))])); err != nil {
				t.Fatal(err)
			}
		}
		if want := `ok\u001b[2J\u001b]0;title\u0007\u000d\u202egnp\u2066\u009b31m\u007f é…`; out.String() != want {
			t.Fatalf("in pieces of %d: %q", size, out.String())
		}
	}
	var out bytes.Buffer
	if err := json.NewEncoder(Safe(&out)).Encode(evil); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != evil {
		t.Errorf("%q, %v", back, err)
	}
}

// A line end in a cell or an argument forges no row.
func TestNoRowIsForged(t *testing.T) {
	l := List{Columns: []Column{{Head: "NAME"}, {Head: "ERROR"}}, Rows: [][]string{{"m-1", "boom\nm-2  fine"}}, Names: []string{"machine/m-1\nmachine/m-2"}}
	for _, f := range []Format{Table, Name, CSV} {
		var out bytes.Buffer
		if err := f.Write(&out, l); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "m-2") || strings.HasPrefix(line, "machine/m-2") {
				t.Errorf("-o %s: a forged row:\n%s", f, &out)
			}
		}
	}
	if got := Line("error: %s", "a\nb"); got != `error: a\u000ab` {
		t.Error(got)
	}
}

// -o csv has every column, wide ones too, and quotes what needs it. A spreadsheet can add its dollars up; a sentence keeps them as they are.
func TestCSV(t *testing.T) {
	var out bytes.Buffer
	l := List{Columns: []Column{{Head: "NAME"}, {Head: "ZONE", Wide: true}, {Head: "PRICE"}, {Head: "WHY"}}, Rows: [][]string{{`a "b", c`, "eu-1", "$0.11/h", "at $0.11/h"}, {"d", Never, "$12.50", ""}}}
	if err := CSV.Write(&out, l); err != nil || out.String() != "NAME,ZONE,PRICE,WHY\n\"a \"\"b\"\", c\",eu-1,0.11,at $0.11/h\nd,,12.50,\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A spreadsheet sorts ages and adds durations up: with -o csv they are seconds, in whichever units a table words them.
func TestDurationsInCSV(t *testing.T) {
	for seconds, want := range map[int]string{0: "0s", 59: "59s", 68: "1m08s", 3*3600 + 120: "3h02m", 2*86400 + 3*3600: "2d03h", 100 * 86400: "100d00h"} {
		cell := Span(time.Duration(seconds) * time.Second)
		if got := plain(cell); cell != want || got != fmt.Sprint(seconds) {
			t.Errorf("%d s is %q, and in a spreadsheet %q", seconds, cell, got)
		}
	}
	for _, cell := range []string{"5 s", "m5s", "1h", "s", "a-5s", "5s ago", "87ms"} {
		if got := plain(cell); got != cell {
			t.Errorf("%q is %q in a spreadsheet", cell, got)
		}
	}
}
