package exit_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// OPS-4.9, OPS-4.10: a connection that ends without an answer ends with 5 and says what to give. net/http words it in two ways, by
// whether the server closes before or after the first request is sent.
func TestClosedConnection(t *testing.T) {
	for _, err := range []error{io.EOF, errors.New("http2: client conn could not be established")} {
		var got *exit.Error
		if !errors.As(exit.Of("reading the status", connect.NewError(connect.CodeUnavailable, err)), &got) || got.Code != exit.Unreachable ||
			got.Reason != "closed" || !strings.HasPrefix(got.Hint, "If it serves TLS, give --tls-cert") {
			t.Errorf("%v: %+v", err, got)
		}
	}
}
