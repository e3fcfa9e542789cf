package up

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// OPS-2.2: a role that comes back waits for its port while another program has it, and says what to do when it keeps it.
func TestPortThatIsTakenMeanwhile(t *testing.T) {
	p, err := hold("127.0.0.1:0", "--shard-metrics-addr")
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	come := make(chan error, 1)
	listen := func(ctx context.Context) {
		again, err := p.listen(ctx)
		if err == nil {
			l = again
		}
		come <- err
	}
	go listen(t.Context()) // l plays the other program
	select {
	case err := <-come:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(3 * portPause):
	}
	_ = l.Close()
	if err := <-come; err != nil {
		t.Fatal(err)
	}
	defer func(l net.Listener) { _ = l.Close() }(l)
	ctx, cancel := context.WithCancel(t.Context())
	go listen(ctx)
	cancel()
	if err := <-come; !errors.Is(err, context.Canceled) {
		t.Errorf("a role that is stopped waits on: %v", err)
	}
	if err := p.takenFor(time.Second); !strings.Contains(err.Error(), p.addr) || !strings.Contains(err.Error(), "--shard-metrics-addr") {
		t.Error(err)
	}
}
