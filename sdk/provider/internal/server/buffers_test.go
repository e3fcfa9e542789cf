package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// PROV-25.7: a large answer is built in a buffer that was used before; but never in one whose answer was cut, because the HTTP
// server may still read from it, and never in a small one, because connect keeps those.
func TestBuffersAreLentAndComeBack(t *testing.T) {
	var l buffers
	call := func(size int, write error, gone bool) []byte {
		t.Helper()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var used []byte
		l.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			used = append(Buffer(r.Context(), size), 1)
			if again := Buffer(r.Context(), size); cap(again) > 0 && &again[:1][0] == &used[0] {
				t.Error("one buffer was lent twice")
			}
			_, _ = w.Write(used)
			if gone {
				leave()
			}
		})).ServeHTTP(&failingWriter{httptest.NewRecorder(), write}, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return used
	}
	same := func(a, b []byte) bool { return &a[0] == &b[0] }
	if small := call(1000, nil, false); same(small, call(1000, nil, false)) {
		t.Error("a small buffer came back")
	}
	if cut := call(lentMin, errors.New("reset"), false); same(cut, call(lentMin, errors.New("reset"), false)) {
		t.Error("a buffer whose write failed came back")
	}
	if cut := call(lentMin, nil, true); same(cut, call(lentMin, nil, true)) {
		t.Error("a buffer of a caller who left came back")
	}
	reused := false // a pool may forget, and does under the race detector
	for range 20 {
		first := call(lentMin, nil, false)
		reused = reused || same(first, call(lentMin+lentMin/32, nil, false))
	}
	if !reused {
		t.Error("no buffer came back")
	}
	if grown := call(3*lentMin, nil, false); cap(grown) < 3*lentMin {
		t.Errorf("%d bytes of room, want %d", cap(grown), 3*lentMin)
	}
	if out := Buffer(t.Context(), 10); cap(out) < 10 || !bytes.Equal(out, nil) {
		t.Error("outside of a call there is a plain buffer")
	}
}

type failingWriter struct {
	*httptest.ResponseRecorder
	err error
}

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	return w.ResponseRecorder.Write(b)
}
