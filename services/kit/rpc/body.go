package rpc

import (
	"io"
	"net/http"
	"time"
)

// timedBody is a request body that must arrive within bodyTimeout. The deadline ends with the body: on HTTP/1.1 it would
// otherwise cut the connection under a handler that takes longer.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func bodyWithin(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	control := http.NewResponseController(w)
	if control.SetReadDeadline(time.Now().Add(bodyTimeout)) != nil {
		return body // a transport without deadlines
	}
	return &timedBody{body, control}
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
