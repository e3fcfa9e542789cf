package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	// HeadBytes is the size of a frame without metadata and body.
	HeadBytes = 20
	// MetaMax bounds the metadata of a frame.
	MetaMax = 4 << 10

	frameMark = 0xBF01
)

var (
	// ErrTorn means that the input ends within a frame, as after a crash during an append.
	ErrTorn = errors.New("the file ends within a frame")
	// ErrDamaged means that a frame is not what was written.
	ErrDamaged = errors.New("a frame is damaged")
	// ErrTooLarge means that a frame was refused before it was written.
	ErrTooLarge = errors.New("the record is too large")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Format is what the frames of one kind of file have in common.
type Format struct {
	// BodyMax bounds the body of a frame, for writing and for reading. Required.
	BodyMax int
}

// Frame is one frame as it was read. Meta and Body are parts of the input.
type Frame struct {
	Meta, Body []byte
	Size       int // of the frame in bytes
}

// Size is the length of a frame in bytes.
func Size(metaBytes, bodyBytes int) int { return HeadBytes + metaBytes + bodyBytes }

// Append adds a frame to dst. The body is the concatenation of its parts. It returns ErrTooLarge, and dst unchanged, for what a
// reader would refuse.
func (f Format) Append(dst, meta []byte, body ...[]byte) ([]byte, error) {
	bodyBytes := 0
	for _, part := range body {
		bodyBytes += len(part)
	}
	if len(meta) > MetaMax {
		return dst, fmt.Errorf("%w: %d bytes of metadata, at most %d", ErrTooLarge, len(meta), MetaMax)
	}
	if bodyBytes > f.BodyMax {
		return dst, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, bodyBytes, f.BodyMax)
	}
	start := len(dst)
	dst = append(dst, make([]byte, HeadBytes)...)
	dst = append(dst, meta...)
	sum := uint32(0)
	for _, part := range body {
		dst = append(dst, part...)
		sum = crc32.Update(sum, castagnoli, part)
	}
	b := dst[start:]
	binary.BigEndian.PutUint16(b, frameMark)
	binary.BigEndian.PutUint16(b[2:], uint16(len(meta)))
	binary.BigEndian.PutUint32(b[4:], uint32(bodyBytes))
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(meta, castagnoli))
	binary.BigEndian.PutUint32(b[12:], sum)
	binary.BigEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli))
	return dst, nil
}

// Parse reads the frame that b begins with. It returns io.EOF when b is empty, ErrTorn when b ends within the frame or holds
// zeros only, and ErrDamaged otherwise.
func (f Format) Parse(b []byte) (Frame, error) {
	h, err := f.parseHead(b)
	if err != nil {
		return Frame{}, err
	}
	metaEnd := HeadBytes + h.metaBytes
	if len(b) < metaEnd {
		return Frame{}, ErrTorn
	}
	meta := b[HeadBytes:metaEnd:metaEnd]
	if err := h.check(meta); err != nil {
		return Frame{}, err
	}
	end := metaEnd + h.bodyBytes
	if len(b) < end {
		return Frame{}, ErrTorn
	}
	body := b[metaEnd:end:end]
	if crc32.Checksum(body, castagnoli) != h.bodySum {
		return Frame{}, fmt.Errorf("%w: the checksum of the body does not match", ErrDamaged)
	}
	return Frame{Meta: meta, Body: body, Size: end}, nil
}

// head is the fixed part of a frame.
type head struct {
	metaBytes, bodyBytes int
	metaSum, bodySum     uint32
}

func (f Format) parseHead(b []byte) (head, error) {
	if err := onlyZeros(b); err != nil {
		return head{}, err
	}
	if len(b) < HeadBytes {
		return head{}, ErrTorn
	}
	h := head{metaBytes: int(binary.BigEndian.Uint16(b[2:])), metaSum: binary.BigEndian.Uint32(b[8:]), bodySum: binary.BigEndian.Uint32(b[12:])}
	bodyBytes := binary.BigEndian.Uint32(b[4:])
	switch {
	case binary.BigEndian.Uint16(b) != frameMark:
		return head{}, fmt.Errorf("%w: no frame begins here", ErrDamaged)
	case crc32.Checksum(b[:16], castagnoli) != binary.BigEndian.Uint32(b[16:]):
		return head{}, fmt.Errorf("%w: the checksum of the head does not match", ErrDamaged)
	case h.metaBytes > MetaMax:
		return head{}, fmt.Errorf("%w: %d bytes of metadata are more than %d", ErrDamaged, h.metaBytes, MetaMax)
	case uint64(bodyBytes) > uint64(f.BodyMax):
		return head{}, fmt.Errorf("%w: a body of %d bytes is larger than %d", ErrDamaged, bodyBytes, f.BodyMax)
	}
	h.bodyBytes = int(bodyBytes)
	return h, nil
}

// check compares the checksum of the metadata.
func (h head) check(meta []byte) error {
	if crc32.Checksum(meta, castagnoli) != h.metaSum {
		return fmt.Errorf("%w: the checksum of the metadata does not match", ErrDamaged)
	}
	return nil
}
