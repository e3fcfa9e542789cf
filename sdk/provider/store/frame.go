package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/bigfleet-dev/bigfleet/sdk/wal"
)

// A batch in a log is a frame of sdk/wal. Its metadata is the id of the log and the number of the batch, 8 bytes each; the next
// batch has the next number, in whichever file it lies. Its body is the writes: table, length of the key, key, 0 for a deletion or
// 1 + length of the value, value. It is padded with zeros to whole sectors, so that writing a frame never touches a sector in which
// an acknowledged one lies.
//
// Behind the newest frame stands a seal: a frame without a body whose metadata has one byte more. It says that the batch of that number
// was acknowledged, so that a damaged newest batch is not taken for one that was being written. The next frame overwrites it.
const (
	sector    = 512
	metaBatch = 16
	metaSeal  = 17
)

var format = wal.Format{BodyMax: segmentSize}

// frame is a batch or a seal as it was found in a log.
type frame struct {
	id, number uint64
	body       []byte
	seal       bool
	size       int // with head and padding
}

// appendWrites adds the body of a batch.
func appendWrites(body []byte, batch []Write) []byte {
	for _, w := range batch {
		body = append(body, byte(w.Table))
		body = append(binary.AppendUvarint(body, uint64(len(w.Key))), w.Key...)
		if w.Value == nil {
			body = append(body, 0)
		} else {
			body = append(binary.AppendUvarint(body, uint64(len(w.Value))+1), w.Value...)
		}
	}
	return body
}

// appendFrame adds a batch. b must end where a sector ends. The error is wal.ErrTooLarge.
func appendFrame(b []byte, id, number uint64, body []byte) ([]byte, error) {
	return appendPadded(b, meta(id, number), body)
}

// appendSeal adds the seal of a batch.
func appendSeal(b []byte, id, number uint64) ([]byte, error) {
	return appendPadded(b, append(meta(id, number), 's'), nil)
}

func meta(id, number uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(make([]byte, 0, metaSeal), id), number)
}

func appendPadded(b, meta, body []byte) ([]byte, error) {
	begin := len(b)
	b, err := format.Append(b, meta, body)
	if over := (len(b) - begin) % sector; over != 0 {
		b = append(b, make([]byte, sector-over)...)
	}
	return b, err
}

// readFrame reads the frame that begins b. It is false where none of this log begins, or where one was not written whole. An
// id of 0 takes the frame of any log.
func readFrame(b []byte, id uint64) (frame, bool) {
	f, ok := frame{}, false
	if found, err := format.Parse(b); err == nil && (len(found.Meta) == metaBatch || len(found.Meta) == metaSeal) {
		f = frame{
			id: binary.BigEndian.Uint64(found.Meta), number: binary.BigEndian.Uint64(found.Meta[8:]), body: found.Body,
			seal: len(found.Meta) == metaSeal, size: found.Size,
		}
		ok = true
	} else {
		f, ok = readOldFrame(b)
	}
	if !ok || f.id == 0 || id != 0 && f.id != id {
		return frame{}, false
	}
	f.size = min((f.size+sector-1)/sector*sector, len(b))
	return f, true
}

// readOldFrame reads a frame of a build before sdk/wal: checksum 4, length 4, id 8, number 8, body.
func readOldFrame(b []byte) (frame, bool) {
	const head = 24
	if len(b) < head {
		return frame{}, false
	}
	length := binary.BigEndian.Uint32(b[4:])
	if uint64(length) > uint64(len(b)-head) {
		return frame{}, false
	}
	end := head + int(length)
	if crc32.Checksum(b[4:end], castagnoli) != binary.BigEndian.Uint32(b) {
		return frame{}, false
	}
	return frame{id: binary.BigEndian.Uint64(b[8:]), number: binary.BigEndian.Uint64(b[16:]), body: b[head:end], size: end}, true
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
// that was being written when the process or the machine stopped, or what is left of earlier use of the file. If a newer frame
// or a newer seal follows, something that was acknowledged is missing.
func readLog(all []frame, b []byte, id, applied uint64) ([]frame, error) {
	at, newest, before := 0, applied, len(all)
	for at < len(b) {
		f, ok := readFrame(b[at:], id)
		if ok && f.seal && f.number == newest {
			break
		}
		if !ok || f.seal || len(all) > before && f.number != all[len(all)-1].number+1 {
			break
		}
		all, newest = append(all, f), max(newest, f.number)
		at += f.size
	}
	for rest := at; rest < len(b); rest += sector {
		if f, ok := readFrame(b[rest:], id); ok && f.number > newest {
			return nil, fmt.Errorf("after batch %d the log continues with batch %d: %w", newest, f.number, ErrDamaged)
		}
	}
	return all, nil
}
