package cli_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// large is a shard that counts how often it was asked for a page of machines.
type large struct {
	shard
	pages atomic.Int32
}

func (l *large) ListMachines(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ListMachinesRequest]) (*connect.Response[bigfleetv1alpha1.ListMachinesResponse], error) {
	l.pages.Add(1)
	return l.shard.ListMachines(ctx, r)
}

func (l *large) GetMachine(_ context.Context, r *connect.Request[bigfleetv1alpha1.GetMachineRequest]) (*connect.Response[bigfleetv1alpha1.GetMachineResponse], error) {
	if r.Msg.GetMachineId() != "m-2" {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such machine"))
	}
	return connect.NewResponse(&bigfleetv1alpha1.GetMachineResponse{Machine: &bigfleetv1alpha1.MachineView{Machine: &bigfleetv1alpha1.Machine{Id: "m-2"}}}), nil
}

// OPS-4.13: one machine by its name is one question, however many others a shard has; with a filter the pages are read as before.
func TestOneMachineIsOneQuestion(t *testing.T) {
	l := &large{}
	address := serve(t, l, l)
	stdout, stderr, code := runAt(t, address, "", "get", "machines", "m-2", "-o", "name")
	if code != exit.OK || strings.TrimSpace(stdout) != "machine/m-2" || l.pages.Load() != 0 {
		t.Errorf("exit %d, %q, %q, after %d pages", code, stdout, stderr, l.pages.Load())
	}
	if _, stderr, code = runAt(t, address, "", "get", "machines", "unknown"); code != exit.NotFound || l.pages.Load() != 0 {
		t.Errorf("unknown: exit %d, %q, after %d pages", code, stderr, l.pages.Load())
	}
	if stdout, stderr, code = runAt(t, address, "", "get", "machines", "m-2", "--cluster", "red", "-o", "name"); code != exit.OK || strings.TrimSpace(stdout) != "machine/m-2" || l.pages.Load() != 2 {
		t.Errorf("filtered: exit %d, %q, %q, after %d pages", code, stdout, stderr, l.pages.Load())
	}
}

// OPS-4.11, OPS-4.13: names are found on later pages too, and reading ends where none can follow.
func TestCompletionReadsOn(t *testing.T) {
	l := &large{}
	address := serve(t, l, l)
	for _, c := range []struct {
		typed, want string
		pages       int32
	}{{"m-2", "m-2", 2}, {"m-", "m-1 m-2", 2}, {"a", "", 1}} {
		l.pages.Store(0)
		var out, errs bytes.Buffer
		e := env.Env{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: func() time.Time { return now }}
		_ = cli.Main(t.Context(), e, []string{"__complete", "--shard", address, "get", "machines", c.typed})
		stdout, stderr := out.String(), errs.String()
		if got := strings.Join(strings.Fields(stdout[:strings.LastIndex(stdout, ":")]), " "); got != c.want || l.pages.Load() != c.pages {
			t.Errorf("%q completes to %q after %d pages, want %q after %d; %s", c.typed, got, l.pages.Load(), c.want, c.pages, stderr)
		}
	}
}
