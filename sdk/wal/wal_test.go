package wal_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/wal"
)

var format = wal.Format{BodyMax: 1 << 10}

type record struct{ meta, body string }

var records = []record{{"", ""}, {"m", "hello"}, {"meta", strings.Repeat("x", 300)}, {"", "last"}}

// file is a file of all records, and the offsets behind each.
func file(t testing.TB) (b []byte, ends []int) {
	t.Helper()
	for _, r := range records {
		var err error
		if b, err = format.Append(b, []byte(r.meta), []byte(r.body[:len(r.body)/2]), []byte(r.body[len(r.body)/2:])); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, len(b))
	}
	return b, ends
}

// parseAll reads b with Parse.
func parseAll(b []byte) (out []record, end int, err error) {
	for {
		f, err := format.Parse(b[end:])
		if err != nil {
			return out, end, err
		}
		out = append(out, record{string(f.Meta), string(f.Body)})
		end += f.Size
	}
}

// readAll reads b with a Reader.
func readAll(b []byte) (out []record, end int, err error) {
	r := format.NewReader(bytes.NewReader(b))
	for {
		meta, err := r.Next()
		if err != nil {
			return out, int(r.Offset()), err
		}
		m := string(meta)
		body, err := r.Body()
		if err != nil {
			return out, int(r.Offset()), err
		}
		out = append(out, record{m, string(body)})
	}
}

// both reads b in both ways, which must agree.
func both(t testing.TB, b []byte) (out []record, end int, err error) {
	t.Helper()
	out, end, err = parseAll(b)
	streamed, streamedEnd, streamedErr := readAll(b)
	for _, kind := range []error{io.EOF, wal.ErrTorn, wal.ErrDamaged} {
		if errors.Is(err, kind) != errors.Is(streamedErr, kind) {
			t.Fatalf("Parse says %v, Reader says %v", err, streamedErr)
		}
	}
	if !slices.Equal(out, streamed) || end != streamedEnd {
		t.Fatalf("Parse read %d frames up to %d, Reader %d up to %d", len(out), end, len(streamed), streamedEnd)
	}
	return out, end, err
}

func TestRoundTrip(t *testing.T) {
	b, _ := file(t)
	out, end, err := both(t, b)
	if !errors.Is(err, io.EOF) || !slices.Equal(out, records) || end != len(b) {
		t.Fatalf("%v; read %v up to %d of %d", err, out, end, len(b))
	}
}

// A file that was cut keeps its whole frames, and says that it was cut and where.
func TestTornTail(t *testing.T) {
	b, ends := file(t)
	for n := range b {
		out, end, err := both(t, b[:n])
		whole, _ := slices.BinarySearch(ends, n+1)
		at := 0
		if whole > 0 {
			at = ends[whole-1]
		}
		want := wal.ErrTorn
		if at == n {
			want = io.EOF
		}
		if !errors.Is(err, want) || end != at || !slices.Equal(out, records[:whole]) {
			t.Fatalf("cut at %d: %v; %d frames up to %d, want %d up to %d", n, err, len(out), end, whole, at)
		}
		if errors.Is(want, io.EOF) {
			continue
		}
		again, err := format.Append(slices.Clone(b[:end]), nil, []byte("next"))
		if err != nil {
			t.Fatal(err)
		}
		if out, _, err := both(t, again); !errors.Is(err, io.EOF) || len(out) != whole+1 {
			t.Fatalf("cut at %d: an append at the torn end leaves %d frames: %v", n, len(out), err)
		}
	}
}

// A file that grew before its content was written is torn; zeros in the middle are damage.
func TestZeros(t *testing.T) {
	b, ends := file(t)
	for _, zeros := range []int{1, wal.HeadBytes - 1, wal.HeadBytes, 200_000} {
		out, end, err := both(t, append(slices.Clone(b), make([]byte, zeros)...))
		if !errors.Is(err, wal.ErrTorn) || len(out) != len(records) || end != len(b) {
			t.Errorf("%d zeros: %v, %d frames", zeros, err, len(out))
		}
	}
	hole := slices.Clone(b)
	clear(hole[ends[0]:ends[1]])
	if out, _, err := both(t, hole); !errors.Is(err, wal.ErrDamaged) || len(out) != 1 {
		t.Errorf("a hole: %v, %d frames", err, len(out))
	}
}

// Every flipped bit is noticed, and is never taken for a torn end.
func TestFlippedBits(t *testing.T) {
	b, ends := file(t)
	for i := range b {
		for bit := range 8 {
			damaged := slices.Clone(b)
			damaged[i] ^= 1 << bit
			out, _, err := both(t, damaged)
			whole, _ := slices.BinarySearch(ends, i+1)
			if !errors.Is(err, wal.ErrDamaged) || !slices.Equal(out, records[:whole]) {
				t.Fatalf("bit %d of byte %d: %v, %d frames", bit, i, err, len(out))
			}
		}
	}
}

// Writing refuses what reading would refuse.
func TestOneLimit(t *testing.T) {
	edge := make([]byte, format.BodyMax)
	b, err := format.Append(nil, make([]byte, wal.MetaMax), edge)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err := both(t, b); !errors.Is(err, io.EOF) || len(out) != 1 {
		t.Fatalf("a frame at the limit: %v", err)
	}
	for _, c := range []struct{ meta, body int }{{0, format.BodyMax + 1}, {wal.MetaMax + 1, 0}} {
		if got, err := format.Append(b, make([]byte, c.meta), make([]byte, c.body)); !errors.Is(err, wal.ErrTooLarge) || len(got) != len(b) {
			t.Errorf("%+v: %v, %d bytes", c, err, len(got))
		}
	}
	if _, err := (wal.Format{BodyMax: 10}).Parse(b); !errors.Is(err, wal.ErrDamaged) {
		t.Errorf("a smaller limit read it: %v", err)
	}
}

// A Reader passes over bodies, and says where each frame begins.
func TestReaderSkips(t *testing.T) {
	b, ends := file(t)
	b[ends[2]-1] ^= 1 // in a body that is not read
	r := format.NewReader(bytes.NewReader(b))
	for i, want := range records {
		meta, err := r.Next()
		if err != nil || string(meta) != want.meta || r.BodyBytes() != len(want.body) || int(r.Offset())+wal.Size(len(meta), r.BodyBytes()) != ends[i] {
			t.Fatalf("frame %d: %q at %d, %v", i, meta, r.Offset(), err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v", err)
	}
	r = format.NewReader(bytes.NewReader(b[:len(b)-1])) // the last body is cut, and not read
	for range records {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, wal.ErrTorn) || int(r.Offset()) != ends[len(ends)-2] {
		t.Fatalf("at %d: %v", r.Offset(), err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("input/output error") }

// An error of the disk is neither an end nor damage.
func TestReadError(t *testing.T) {
	b, _ := file(t)
	for _, n := range []int{0, 4, 20, len(b)} {
		r := format.NewReader(io.MultiReader(bytes.NewReader(b[:n]), broken{}))
		var err error
		for err == nil {
			if _, err = r.Next(); err == nil {
				_, err = r.Body()
			}
		}
		if !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// Whatever stands in a file, both readers agree, never panic, and what they accept is what Append would write.
func FuzzParse(f *testing.F) {
	b, _ := file(f)
	f.Add(b)
	f.Add(b[:len(b)-3])
	f.Add(make([]byte, 40))
	f.Add([]byte{0xBF, 0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, b []byte) {
		out, end, err := both(t, b)
		if err == nil {
			t.Fatal("reading ended without an error")
		}
		var again []byte
		for _, r := range out {
			if again, err = format.Append(again, []byte(r.meta), []byte(r.body)); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(again, b[:end]) {
			t.Fatal("what was read is not what would be written")
		}
	})
}
