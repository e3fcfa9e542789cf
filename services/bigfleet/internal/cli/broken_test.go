package cli_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// failing is a stdout whose reader went away, and a network whose connections break: both say EPIPE.
type failing struct{ net.Conn }

func (failing) Write([]byte) (int, error)        { return 0, fmt.Errorf("write: %w", syscall.EPIPE) }
func (failing) Close() error                     { return nil }
func (failing) SetDeadline(time.Time) error      { return nil }
func (failing) SetReadDeadline(time.Time) error  { return nil }
func (failing) SetWriteDeadline(time.Time) error { return nil }
func (failing) Read([]byte) (int, error)         { return 0, io.EOF }

// OPS-4.10: a reader that had enough is not a failure; a server that ends the connection is one, whatever the form of the answer.
func TestABrokenConnectionIsNoSuccess(t *testing.T) {
	for _, format := range []string{"table", "json", "jsonl"} {
		var out, errs bytes.Buffer
		world := env.Env{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now,
			Dial: func(context.Context, string, string) (net.Conn, error) { return failing{}, nil }}
		code := cli.Main(t.Context(), world, []string{"get", "needs", "-o", format, "--shard", "shard.example:7780"})
		if code != exit.Unreachable || !strings.Contains(errs.String(), "closed the connection without an answer") {
			t.Errorf("-o %s: exit %d, stdout %q, stderr %q", format, code, out.String(), errs.String())
		}
	}
	var errs bytes.Buffer
	world := env.Env{In: strings.NewReader(""), Out: failing{}, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	if code := cli.Main(t.Context(), world, []string{"roles"}); code != exit.OK || errs.Len() > 0 {
		t.Errorf("a reader that went: exit %d, stderr %q", code, errs.String())
	}
}

// OPS-4.9: a server with TLS is called so by a command without.
func TestAServerWithTLSIsCalledSo(t *testing.T) {
	ca, err := devca.New("trial")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Write(t.TempDir(), "shard", devca.For(identity.ID{Kind: identity.Shard, Name: "shard-0"}, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_ = conn.(*tls.Conn).Handshake() // fails: what comes is no TLS
			_ = conn.Close()
		}
	}()
	var out, errs bytes.Buffer
	world := env.Env{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	code := cli.Main(t.Context(), world, []string{"status", "--shard", l.Addr().String()})
	if code != exit.Unreachable || !strings.Contains(errs.String(), "If it serves TLS, give --tls-cert") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out.String(), errs.String())
	}
}
