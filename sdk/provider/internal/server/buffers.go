package server

import (
	"context"
	"net/http"
	"sync"
)

// Lists of a whole fleet are a hundred megabytes. Making such a buffer for each keeps the collector at work all the time, at the
// cost of every other call (PROV-25.7). So a large answer is built in a buffer that is used again once the answer is written.

// lentMin is the size from which a buffer is lent. It must stay above the 8 MiB up to which connect keeps the buffers of
// answers for itself: two owners of one buffer would write over each other.
const lentMin = 16 << 20

// buffers keeps buffers as long as they are in use: what lies idle for two collections is freed.
type buffers struct{ pool sync.Pool }

// lent is the buffer of one call.
type lent struct {
	from *buffers
	b    []byte
}

type bufferKey struct{}

// handler lends buffers to the calls of next. A buffer comes back only when the answer was written whole to a caller that is
// still there: the HTTP server may continue reading from one whose stream was cut.
func (l *buffers) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := &lent{from: l}
		out := &watchedWriter{ResponseWriter: w}
		r = r.WithContext(context.WithValue(r.Context(), bufferKey{}, one))
		next.ServeHTTP(out, r)
		if one.b != nil && out.err == nil && r.Context().Err() == nil {
			l.pool.Put(&one.b)
		}
	})
}

// Buffer returns an empty slice with room for size bytes. It is the caller's until the answer of the call is written.
func Buffer(ctx context.Context, size int) []byte {
	one, _ := ctx.Value(bufferKey{}).(*lent)
	if one == nil || size < lentMin || one.b != nil {
		return make([]byte, 0, size)
	}
	if kept, _ := one.from.pool.Get().(*[]byte); kept != nil && cap(*kept) >= size {
		one.b = (*kept)[:0]
	} else {
		one.b = make([]byte, 0, size+size/16) // a fleet that grows a little fits again
	}
	return one.b
}

// watchedWriter remembers that a write failed.
type watchedWriter struct {
	http.ResponseWriter
	err error
}

func (w *watchedWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	if err != nil {
		w.err = err
	}
	return n, err
}

// Flush is what gRPC needs of a writer.
func (w *watchedWriter) Flush() {
	if err := http.NewResponseController(w.ResponseWriter).Flush(); err != nil {
		w.err = err
	}
}

// Unwrap lets http.ResponseController reach what is below.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
