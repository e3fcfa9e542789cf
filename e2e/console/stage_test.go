package console

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	program  = "services/bigfleet"
	browsing = 10 * time.Minute // the bound of one browser's run
)

// web is the directory of the browser's side. It skips the test where there is no browser or nothing to drive it with.
func web(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: the web UI is not tried in a browser", tool)
		}
	}
	if _, err := exec.LookPath("chromium"); err != nil && os.Getenv("CHROMIUM") == "" {
		t.Skip("chromium is not installed and CHROMIUM names no browser: the web UI is not tried in one")
	}
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "services", "console", "web")
	install.Do(func() {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", "playwright-core")); err == nil {
			return
		}
		cmd := exec.CommandContext(context.Background(), "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			installed = fmt.Errorf("npm ci: %w\n%s", err, out)
		}
	})
	if installed != nil {
		t.Skip(installed)
	}
	return dir
}

var (
	install   sync.Once
	installed error
)

// consoleOver runs a console whose one shard is a handler of the test, and returns its address.
func consoleOver(t *testing.T, name string, shard api.ShardReadHandler) (base string) {
	t.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), StopTimeout: time.Second, Services: []rpc.Service{{
		Name: api.ShardReadName, Limits: rpc.ReadLimits(), Access: rpc.AllowAll(api.ShardReadName, rpc.Allow()),
		New: func(o ...connect.HandlerOption) (string, http.Handler) { return api.NewShardReadHandler(shard, o...) },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	at := addresses(t, 2)
	proc.StartT(t, proc.Config{Name: name, Path: proc.BuildT(t, program), Args: []string{"console", "--listen", at[0], "--coordinator", "", "--shard", "s0=" + l.Addr().String(), "--metrics-addr", at[1]},
		Ready: proc.HTTP("http://"+at[1]+"/readyz", nil)})
	return "http://" + at[0]
}

// browse runs a script of the browser's side. What it finds wrong fails the test.
func browse(t *testing.T, script string, env []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browsing)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join("test", script)}, args...)...)
	cmd.Dir = web(t)
	cmd.Env = append(os.Environ(), env...)
	if path, err := exec.LookPath("chromium"); err == nil && os.Getenv("CHROMIUM") == "" {
		cmd.Env = append(cmd.Env, "CHROMIUM="+path)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	t.Logf("%s", out.Bytes())
	shrink(t)
	if err != nil {
		t.Errorf("%s: %v", script, err)
	}
}

// addresses are as many free addresses, for as long as the test runs.
func addresses(t *testing.T, n int) []string {
	t.Helper()
	ports, err := loopback.ReserveN(n)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range ports {
		out = append(out, p.Addr())
		t.Cleanup(p.Release)
	}
	return out
}

// fleet asks a console what its one shard says.
type fleet struct {
	t       *testing.T
	read    api.ShardReadClient
	console api.ConsoleClient
}

func newFleet(t *testing.T, base string) *fleet {
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return &fleet{t, api.NewShardReadClient(client, base), api.NewConsoleClient(client, base)}
}

// machine waits for the first machine with a record that is wanted.
func (f *fleet) machine(what string, wanted func(*v1.DecisionRecord) bool) string {
	f.t.Helper()
	return eventually(f.t, what, func() (string, bool) {
		got, err := f.read.GetMachineHistory(f.t.Context(), connect.NewRequest(&v1.GetMachineHistoryRequest{PageSize: 5000}))
		if err != nil {
			return "", false
		}
		for _, r := range got.Msg.GetRecords() {
			if r.GetMachineId() != "" && wanted(r) {
				return r.GetMachineId(), true
			}
		}
		return "", false
	})
}

// eventually waits for what a few seconds bring; the bound is only there to end a test that fails.
func eventually[T any](t *testing.T, what string, is func() (T, bool)) T {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		v, ok := is()
		if ok {
			return v
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}
