package rpc

import (
	"compress/gzip"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
)

const (
	// decodeBytesMin is the least budget of a server for bytes that are being decompressed.
	decodeBytesMin = 32 << 20
	// decodeStep is how much of the budget a message takes at a time.
	decodeStep = 64 << 10
	// decodeWaitMax is how long a message waits for a part of the budget.
	decodeWaitMax = 2 * time.Second
)

var errBudget = errors.New("too many large messages are being decompressed at once: retry")

// budget bounds the bytes that a server decompresses at a time, over all its connections. A small compressed message can become a
// large one, so what it becomes is counted, and not what was sent.
type budget struct {
	most int

	mu    sync.Mutex
	used  int
	freed chan struct{} // closed when something was released
}

func newBudget(most int) *budget { return &budget{most: most, freed: make(chan struct{})} }

// take reserves n bytes. It waits for others to release, and gives up after decodeWaitMax.
func (b *budget) take(n int) error {
	var timeout <-chan time.Time
	for {
		b.mu.Lock()
		if b.used+n <= b.most {
			b.used += n
			b.mu.Unlock()
			return nil
		}
		freed := b.freed
		b.mu.Unlock()
		if timeout == nil {
			timer := time.NewTimer(decodeWaitMax)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-freed:
		case <-timeout:
			return connect.NewError(connect.CodeResourceExhausted, errBudget)
		}
	}
}

func (b *budget) release(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	close(b.freed)
	b.freed = make(chan struct{})
}

// option replaces connect's gzip by one that is counted.
func (b *budget) option() connect.HandlerOption {
	return connect.WithCompression("gzip",
		func() connect.Decompressor { return &countedReader{budget: b} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) })
}

// countedReader is a connect.Decompressor. It holds a part of the budget from its first byte until Close.
type countedReader struct {
	gzip.Reader
	budget *budget
	held   int
	left   int // of what is held
}

func (r *countedReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		if err := r.budget.take(decodeStep); err != nil {
			return 0, err
		}
		r.held, r.left = r.held+decodeStep, decodeStep
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

func (r *countedReader) Close() error {
	r.budget.release(r.held)
	r.held, r.left = 0, 0
	return r.Reader.Close()
}
