package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A frame is one batch in a log:
//
//	checksum  4 bytes  CRC-32C of everything behind it, padding excluded
//	length    4 bytes  of the body
//	id        8 bytes  of the log
//	number    8 bytes  of the batch; the next batch has the next number, in whichever file it lies
//	body               writes: table, length of the key, key, 0 for a deletion or 1 + length of the value, value
//
// padded with zeros to whole sectors, so that writing a frame never touches a sector in which an acknowledged one lies.
const (
	sector    = 512
	frameHead = 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a batch as it was found in a log.
type frame struct {
	number uint64
	body   []byte
	size   int // with head and padding
}

// appendFrame adds a batch. b must end where a sector ends.
func appendFrame(b []byte, id, number uint64, batch []Write) []byte {
	begin := len(b)
	b = append(b, make([]byte, 8)...)
	b = binary.BigEndian.AppendUint64(b, id)
	b = binary.BigEndian.AppendUint64(b, number)
	for _, w := range batch {
		b = append(b, byte(w.Table))
		b = append(binary.AppendUvarint(b, uint64(len(w.Key))), w.Key...)
		if w.Value == nil {
			b = append(b, 0)
		} else {
			b = append(binary.AppendUvarint(b, uint64(len(w.Value))+1), w.Value...)
		}
	}
	f := b[begin:]
	binary.BigEndian.PutUint32(f[4:], uint32(len(f)-frameHead))
	binary.BigEndian.PutUint32(f, crc32.Checksum(f[4:], castagnoli))
	if over := len(f) % sector; over != 0 {
		b = append(b, make([]byte, sector-over)...)
	}
	return b
}

// readFrame reads the frame that begins b. It is false where none of this log begins, or where one was not written whole. An
// id of 0 takes the frame of any log.
func readFrame(b []byte, id uint64) (frame, bool) {
	if len(b) < frameHead {
		return frame{}, false
	}
	length, from := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])
	if from == 0 || id != 0 && from != id || uint64(length) > uint64(len(b)-frameHead) {
		return frame{}, false
	}
	end := frameHead + int(length)
	if crc32.Checksum(b[4:end], castagnoli) != binary.BigEndian.Uint32(b) {
		return frame{}, false
	}
	size := (end + sector - 1) / sector * sector
	return frame{number: binary.BigEndian.Uint64(b[16:]), body: b[frameHead:end], size: min(size, len(b))}, true
}

// writes calls visit for each write. Keys and values are parts of the frame.
func (f frame) writes(visit func(Write)) error {
	b := f.body
	part := func(n uint64) ([]byte, bool) {
		if n > uint64(len(b)) {
			return nil, false
		}
		out := b[:n:n]
		b = b[n:]
		return out, true
	}
	number := func() (uint64, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return 0, false
		}
		b = b[size:]
		return n, true
	}
	for len(b) > 0 {
		w := Write{Table: Table(b[0])}
		b = b[1:]
		n, ok := number()
		if ok {
			w.Key, ok = part(n)
		}
		if ok {
			n, ok = number()
		}
		if ok && n > 0 {
			w.Value, ok = part(n - 1)
		}
		if !ok || w.Table.String() == "unknown" {
			return fmt.Errorf("batch %d of the log: %w", f.number, ErrDamaged)
		}
		visit(w)
	}
	return nil
}

// readLog adds the frames of a log that follow each other from its beginning. What comes behind the last one is a frame
// that was being written when the process or the machine stopped, or what is left of earlier use of the file; unless a
// newer frame follows: then something that was acknowledged is missing.
func readLog(all []frame, b []byte, id, applied uint64) ([]frame, error) {
	at, newest, before := 0, applied, len(all)
	for at < len(b) {
		f, ok := readFrame(b[at:], id)
		if !ok || len(all) > before && f.number != all[len(all)-1].number+1 {
			break
		}
		all, newest = append(all, f), max(newest, f.number)
		at += f.size
	}
	for rest := at; rest < len(b); rest += sector {
		if f, ok := readFrame(b[rest:], id); ok && f.number > newest {
			return nil, fmt.Errorf("what should follow batch %d of the log is not there, batch %d is: %w", newest, f.number, ErrDamaged)
		}
	}
	return all, nil
}
