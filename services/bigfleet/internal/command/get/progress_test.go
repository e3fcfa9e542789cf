package get_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// slow answers only once the user has read that the command waits.
type slow struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
	read <-chan struct{}
}

func (s slow) ListMachines(ctx context.Context, _ *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	select {
	case <-s.read:
	case <-ctx.Done():
	}
	return connect.NewResponse(&pb.ListMachinesResponse{Machines: []*pb.MachineView{{Machine: &pb.Machine{Id: "m-1"}}}}), nil
}

// listener closes read once it was written the text.
type listener struct {
	text string
	read chan struct{}
	once sync.Once
	all  strings.Builder
}

func (l *listener) Write(p []byte) (int, error) {
	n, err := l.all.Write(p)
	if strings.Contains(l.all.String(), l.text) {
		l.once.Do(func() { close(l.read) })
	}
	return n, err
}

// OPS-4.1: a read that is taking a whileer than a second says on stderr what it waits for, and stdout holds the data alone.
func TestSlowReadSaysSo(t *testing.T) {
	errs := &listener{text: "still waiting for 127.0.0.1:", read: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewShardReadHandler(slow{read: errs.read}))
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.Protocols.SetHTTP1(true)
	s.Start()
	t.Cleanup(s.Close)

	var out strings.Builder
	code := cli.Main(t.Context(), env.Env{In: strings.NewReader(""), Out: &out, Err: errs, Getenv: func(string) string { return "" }, Now: time.Now},
		[]string{"get", "machines", "-o", "name", "--timeout", "2m", "--shard", s.Listener.Addr().String()})
	if code != exit.OK || out.String() != "machine/m-1\n" || strings.Count(errs.all.String(), "listing machines is taking a while") != 1 {
		t.Errorf("exit %d\nstdout: %s\nstderr: %s", code, &out, &errs.all)
	}
}
