package cli_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	role "github.com/bigfleet-dev/bigfleet/services/shard"
)

// issue makes a CA and a certificate for each identity, which serves 127.0.0.1 too.
func issue(t *testing.T, ids ...identity.ID) (out []identity.Files) {
	t.Helper()
	ca, err := devca.New("trial")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, id := range ids {
		files, err := ca.Write(dir, string(id.Kind), devca.For(id, "127.0.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, files)
	}
	return out
}

// runs runs a role until the test ends and waits until its port is served.
func runs(t *testing.T, component string, run func(ctx context.Context, tel *telemetry.Telemetry, ready chan<- struct{}) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	tel, err := telemetry.New(ctx, telemetry.Config{Component: component, LogWriter: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- run(ctx, tel, ready) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("%s ended with %v", component, err)
		}
		_ = tel.Close(context.Background())
	})
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("%s ended with %v", component, err)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// OPS-4.9, OPS-4.10, OPS-8.1: a real coordinator and a real shard under TLS. A denied caller gets the identities that may call (6); who cannot even talk to
// them gets the flags that are missing (5), at once and not after an election that would change nothing.
func TestDeniedCallersGetTheReason(t *testing.T) {
	files := issue(t, identity.ID{Kind: identity.Coordinator, Name: "coordinator-0"}, identity.ID{Kind: identity.Shard, Name: "shard-0"},
		identity.ID{Kind: identity.Admin}, identity.ID{Kind: identity.ReadOnly}, identity.ID{Kind: identity.Cluster, Name: "red"})
	stranger := issue(t, identity.ID{Kind: identity.Admin})[0]
	rpcs, raft, ofShard := listen(t), listen(t), listen(t)
	runs(t, "coordinator", func(ctx context.Context, tel *telemetry.Telemetry, ready chan<- struct{}) error {
		return coordinator.Run(ctx, coordinator.Config{ID: "coordinator-0", Bootstrap: true, DataDir: t.TempDir(), Listener: rpcs, RaftListener: raft,
			Advertise: rpcs.Addr().String(), RaftAdvertise: raft.Addr().String(), TLS: files[0], Telemetry: tel, Ready: ready})
	})
	runs(t, "shard", func(ctx context.Context, tel *telemetry.Telemetry, ready chan<- struct{}) error {
		return role.Run(ctx, role.Config{ID: "shard-0", DataDir: t.TempDir(), Listener: ofShard, TLS: files[1], Telemetry: tel, Ready: ready,
			Providers: []role.Provider{{Name: "none", Addr: "127.0.0.1:1"}}, NoPeerIdentity: true})
	})
	admin, readOnly, cluster := files[2], files[3], files[4]
	mixed := identity.Files{Cert: stranger.Cert, Key: stranger.Key, CA: admin.CA}
	for _, c := range []struct {
		name string
		line string
		as   identity.Files
		want exit.Code
		says string
	}{
		{"a reader reads", "status", readOnly, exit.OK, ""},
		{"an admin orders", "pause --shard @shard --reason trial --yes", admin, exit.OK, ""},
		{"a reader orders a shard", "pause --shard @shard --reason trial --yes", readOnly, exit.Denied, "bigfleet://readonly may not call this, [admin] may. --tls-cert and --tls-key, or --context"},
		{"a reader orders the coordinator", "providers set p --reason trial --yes", readOnly, exit.Denied, "bigfleet://readonly may not call this"},
		{"a cluster reads the coordinator", "get domains", cluster, exit.Denied, "bigfleet://cluster/red may not call this"},
		{"for programs", "get domains -o json", cluster, exit.Denied, `{"code":6,"hint":"--tls-cert and --tls-key, or --context, name a certificate of another identity"`},
		{"no certificate", "get domains", identity.Files{}, exit.Unreachable, "the server closed the connection without an answer. If it serves TLS, give --tls-cert"},
		{"no certificate, a shard", "status --shard @shard", identity.Files{}, exit.Unreachable, "If it serves TLS, give --tls-cert"},
		{"the certificate of another CA", "get domains", mixed, exit.Unreachable, " CA "}, // refused in words, or with a closed connection
		{"another CA", "get domains", stranger, exit.Unreachable, "is refused: x509"},
		{"a shard for a coordinator", "get domains --coordinator @shard", admin, exit.Unreachable, "another kind of server answers there (HTTP status 404). Default ports: shard 7780"},
		{"doctor as a cluster", "doctor", cluster, exit.Problems, "may\n      -> --tls-cert and --tls-key, or --context, name a certificate of another identity"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(c.line, "@shard", ofShard.Addr().String()))
			args = append(args, "--timeout", "1m") // of the machine that runs this, not of what it asks
			if !strings.Contains(c.line, "@shard") {
				args = append(args, "--coordinator", rpcs.Addr().String())
			}
			if strings.HasPrefix(c.line, "status") && c.want == exit.OK {
				args = append(args, "--shard", ofShard.Addr().String())
			}
			if c.as != (identity.Files{}) {
				args = append(args, "--tls-cert", c.as.Cert, "--tls-key", c.as.Key, "--tls-ca", c.as.CA)
			}
			var out, errs bytes.Buffer
			world := env.Env{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
			if code := cli.Main(t.Context(), world, args); code != c.want || !strings.Contains(out.String()+errs.String(), c.says) {
				t.Errorf("bigfleet %s: exit %d, want %d and %q\nstdout %s\nstderr %s", c.line, code, c.want, c.says, out.String(), errs.String())
			}
		})
	}
}
