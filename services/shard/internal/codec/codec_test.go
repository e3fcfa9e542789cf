package codec

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type leaf struct {
	Name  string `n:"1"`
	Value int64  `n:"2"`
}

type Embedded struct {
	First int64  `n:"15"`
	Last  string `n:"20"`
}

type tree struct {
	Embedded

	Flag    bool     `n:"1"`
	Small   int8     `n:"2"`
	Big     int64    `n:"3"`
	Count   uint32   `n:"4"`
	Text    string   `n:"5"`
	Raw     []byte   `n:"6"`
	Leaf    leaf     `n:"7"`
	Case    *leaf    `n:"8"`
	Leaves  []leaf   `n:"9"`
	Numbers []int64  `n:"10"`
	Words   []string `n:"11"`
	Pair    [2]int64 `n:"12"`
	Ptrs    []*leaf  `n:"13"`
	Hashes  []uint64 `n:"14"`
	Private string   `n:"-"`
}

func drawTree(t *rapid.T) tree {
	text := rapid.StringMatching(`[a-z]{0,5}`)
	l := rapid.Custom(func(t *rapid.T) leaf {
		return leaf{text.Draw(t, "name"), rapid.Int64().Draw(t, "value")}
	})
	v := tree{
		Flag: rapid.Bool().Draw(t, "flag"), Small: rapid.Int8().Draw(t, "small"), Big: rapid.Int64().Draw(t, "big"),
		Count: rapid.Uint32().Draw(t, "count"), Text: strings.Repeat(text.Draw(t, "text"), rapid.IntRange(0, 60).Draw(t, "n")),
		Embedded: Embedded{rapid.Int64().Draw(t, "first"), text.Draw(t, "last")}, Leaf: l.Draw(t, "leaf"), Pair: [2]int64{rapid.Int64().Draw(t, "a"), 0},
	}
	if b := rapid.SliceOf(rapid.Byte()).Draw(t, "raw"); len(b) > 0 {
		v.Raw = b
	}
	if rapid.Bool().Draw(t, "case") {
		c := l.Draw(t, "c")
		v.Case = &c
	}
	for range rapid.IntRange(0, 4).Draw(t, "leaves") {
		v.Leaves = append(v.Leaves, l.Draw(t, "x"))
		v.Numbers = append(v.Numbers, rapid.Int64().Draw(t, "n"))
		v.Words = append(v.Words, text.Draw(t, "w"))
		p := l.Draw(t, "p")
		v.Ptrs = append(v.Ptrs, &p)
		v.Hashes = append(v.Hashes, rapid.Uint64().Draw(t, "h"))
	}
	return v
}

func TestRoundTripIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawTree(t)
		b := Marshal(v)
		var back tree
		if err := Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(v, back); d != "" {
			t.Fatal(d)
		}
		if !bytes.Equal(b, Marshal(&back)) {
			t.Fatal("equal values gave different bytes")
		}
	})
}

// The bytes are those of Protocol Buffers: a message with the same numbers reads them.
func TestFormIsProtobuf(t *testing.T) {
	type likeAny struct {
		URL   string `n:"1"`
		Value []byte `n:"2"`
	}
	var msg anypb.Any
	if err := proto.Unmarshal(Marshal(likeAny{"type", []byte{1, 2}}), &msg); err != nil {
		t.Fatal(err)
	}
	if msg.TypeUrl != "type" || !bytes.Equal(msg.Value, []byte{1, 2}) {
		t.Fatalf("%v", &msg)
	}
}

// A newer writer's fields are skipped; a shorter struct reads what it knows.
func TestUnknownNumbersAreSkipped(t *testing.T) {
	type older struct {
		Text string `n:"5"`
	}
	var o older
	if err := Unmarshal(Marshal(tree{Text: "x", Big: 7, Leaves: []leaf{{"a", 1}}}), &o); err != nil || o.Text != "x" {
		t.Fatalf("%+v, %v", o, err)
	}
}

func FuzzUnmarshalNeverPanics(f *testing.F) {
	f.Add(Marshal(tree{Text: "x", Numbers: []int64{1, -2}, Case: &leaf{"a", 1}}))
	f.Add([]byte{0x4a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{0x62, 0x00, 0x62, 0x00, 0x62, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		var v tree
		if err := Unmarshal(b, &v); err == nil {
			Marshal(v)
		}
	})
}
