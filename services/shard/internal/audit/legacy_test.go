package audit

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"testing"
)

// SHARD-28.3: a segment of an earlier build is read and replayed as one of this build is.
func TestSegmentsOfEarlierBuildsAreRead(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, nil)
	h.begin()
	h.live(3)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	want, err := Replay{Dir: dir}.Run(t.Context())
	if err != nil || want.Damage != nil || want.Steps == 0 {
		t.Fatalf("%+v, %v", want, err)
	}
	list, err := segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		legacy := []byte(legacyMagic)
		var entries [][]byte
		var of block
		flush := func() {
			if len(entries) == 0 {
				return
			}
			body, err := compress(entries)
			if err != nil {
				t.Fatal(err)
			}
			head := binary.BigEndian.AppendUint32([]byte{byte(of.kind)}, uint32(len(body)))
			head = binary.BigEndian.AppendUint32(head, crc32.Checksum(body, crcTable))
			head = binary.BigEndian.AppendUint64(head, uint64(of.first))
			head = binary.BigEndian.AppendUint64(head, uint64(of.last))
			head = binary.BigEndian.AppendUint32(head, uint32(len(entries)))
			head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, crcTable))
			legacy, entries = append(append(legacy, head...), body...), nil
		}
		err := scan(s.path, func(b block) bool { flush(); of = b; return true }, func(_ block, raw []byte) error {
			entries = append(entries, append([]byte(nil), raw...))
			return nil
		})
		if flush(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.path, legacy, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Replay{Dir: dir}.Run(t.Context())
	if err != nil || got.Damage != nil || got.Steps != want.Steps || got.Records != want.Records || got.Core.StateDigest() != want.Core.StateDigest() {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if err := os.Truncate(list[0].path, int64(len(legacyMagic)+legacyHeaderSize+3)); err != nil {
		t.Fatal(err)
	}
	if got, err := (Replay{Dir: dir}).Run(t.Context()); err != nil || got.Damage == nil || !got.Damage.Tail {
		t.Errorf("a torn segment of an earlier build: %+v, %v", got, err)
	}
}
