package wal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Reader reads the frames of a stream in order. It holds one frame at a time and can pass over bodies. Not safe for concurrent
// use.
type Reader struct {
	format Format
	r      *bufio.Reader
	start  int64 // of the current frame
	next   int64 // of the frame behind it
	head   head
	unread bool // the body of the current frame is still in r
	meta   []byte
	body   bytes.Buffer
	err    error
}

// NewReader returns a Reader of the frames in r. Offsets count from where r stands.
func (f Format) NewReader(r io.Reader) *Reader {
	return &Reader{format: f, r: bufio.NewReaderSize(r, 64<<10)}
}

// Next moves to the next frame and returns its metadata, which is valid until the next call. It passes over a body that was not
// read. The error is io.EOF, ErrTorn, ErrDamaged or that of the stream, and stays.
func (r *Reader) Next() (meta []byte, err error) {
	if r.err == nil {
		r.err = r.advance()
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.meta, nil
}

// Body reads the body of the current frame and verifies it. It is valid until the next call of Next, and read once.
func (r *Reader) Body() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	if !r.unread {
		return nil, errors.New("the body of this frame was read before, or Next was not called")
	}
	r.unread = false
	r.body.Reset() // it grows with what is there, whatever a length claims
	if _, err := io.CopyN(&r.body, r.r, int64(r.head.bodyBytes)); err != nil {
		r.err = torn(err)
		return nil, r.err
	}
	if crc32.Checksum(r.body.Bytes(), castagnoli) != r.head.bodySum {
		r.err = fmt.Errorf("%w: the checksum of the body does not match", ErrDamaged)
		return nil, r.err
	}
	return r.body.Bytes(), nil
}

// Offset is where the current frame begins. After an error of Next or Body it is where the last usable frame ends.
func (r *Reader) Offset() int64 { return r.start }

// BodyBytes is the length of the body of the current frame.
func (r *Reader) BodyBytes() int { return r.head.bodyBytes }

func (r *Reader) advance() error {
	if r.unread {
		r.unread = false
		if n, err := r.r.Discard(r.head.bodyBytes); err != nil || n < r.head.bodyBytes {
			return torn(err)
		}
	}
	r.start = r.next
	var fixed [HeadBytes]byte
	n, err := io.ReadFull(r.r, fixed[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if h, err := r.format.parseHead(fixed[:n]); err == nil {
		r.head = h
	} else if errors.Is(err, ErrTorn) {
		return r.zerosFollow()
	} else {
		return err
	}
	r.meta = append(r.meta[:0], make([]byte, r.head.metaBytes)...)
	if _, err := io.ReadFull(r.r, r.meta); err != nil {
		return torn(err)
	}
	if err := r.head.check(r.meta); err != nil {
		return err
	}
	r.unread = true
	r.next = r.start + int64(Size(r.head.metaBytes, r.head.bodyBytes))
	return nil
}

// zerosFollow tells a torn end from damage: behind a head of zeros nothing else may follow.
func (r *Reader) zerosFollow() error {
	for {
		_, err := r.r.Peek(1)
		if err != nil {
			return torn(err)
		}
		b, _ := r.r.Peek(r.r.Buffered())
		if err := onlyZeros(b); errors.Is(err, ErrTorn) {
			_, _ = r.r.Discard(len(b))
			continue
		}
		return fmt.Errorf("%w: there are zeros where a frame should begin", ErrDamaged)
	}
}

// onlyZeros returns io.EOF for an empty b, ErrTorn for zeros, and nil for anything else.
func onlyZeros(b []byte) error {
	if len(b) == 0 {
		return io.EOF
	}
	for _, c := range b {
		if c != 0 {
			return nil
		}
	}
	return ErrTorn
}

// torn turns the end of the stream within a frame into ErrTorn.
func torn(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTorn
	}
	return err
}
