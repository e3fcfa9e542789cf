package session

import "sync"

// Blobs keeps the secret bytes of bootstrap answers from their arrival until the core drops them. They are in no event,
// log line, trace or file (SHARD-16.6). A blob is kept only for a request that the core made and for its cluster.
type Blobs struct {
	mu   sync.Mutex
	open map[string]*blob
}

type blob struct {
	cluster string
	bytes   []byte
}

// NewBlobs returns an empty keeper.
func NewBlobs() *Blobs { return &Blobs{open: map[string]*blob{}} }

// Expect opens a place for the answer to a request.
func (b *Blobs) Expect(request, cluster string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[request] = &blob{cluster: cluster}
}

// put stores the bytes of an expected answer.
func (b *Blobs) put(request, cluster string, bytes []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.open[request]
	if e == nil || e.cluster != cluster || e.bytes != nil {
		return false
	}
	e.bytes = bytes
	return true
}

// Bytes returns the blob of a request, for Configure. The slice is valid until Drop.
func (b *Blobs) Bytes(request string) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.open[request]
	if e == nil || e.bytes == nil {
		return nil, false
	}
	return e.bytes, true
}

// Drop wipes the bytes of a request. A Configure that still sends them has its own copy.
func (b *Blobs) Drop(request string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.open[request]; e != nil {
		clear(e.bytes)
		delete(b.open, request)
	}
}

// Len is how many requests are open.
func (b *Blobs) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}
