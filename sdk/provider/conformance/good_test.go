package conformance_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"

	"connectrpc.com/connect"
)

// serve puts a handler on a loopback port over HTTP/2.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return l.Addr().String()
}

// good runs a right provider in this process and returns a client of it, its address and its cloud.
func good(t *testing.T, readiness provider.Readiness, options ...provider.Option) (bigfleetv1alpha1connect.CapacityProviderClient, string, string) {
	t.Helper()
	cloud, err := substrate.New(substrate.Config{Name: "good", Offerings: provider.GeneralCatalogue(100), Latency: map[string]substrate.Latency{"": {Constant: time.Millisecond}}})
	if err != nil {
		t.Fatal(err)
	}
	served, err := cloud.Serve("127.0.0.1:0", provider.Common{}.Files())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := provider.New("good", served, append([]provider.Option{
		provider.WithStore(store.Memory()), provider.WithReadiness(readiness), provider.WithListener(l), provider.WithOfferings(provider.GeneralCatalogue(100)...),
		provider.WithLogger(slog.New(slog.DiscardHandler)), provider.WithReconcileInterval(100 * time.Millisecond), provider.WithJanitor(false),
		provider.WithShutdownGrace(time.Millisecond), provider.WithPrices(time.Hour, 0),
		provider.WithTimeouts(provider.Timeouts{Create: 2 * time.Second, Configure: 2 * time.Second, Delete: 2 * time.Second, DrainExtra: 2 * time.Second}),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	<-p.Ready()
	return bigfleetv1alpha1connect.NewCapacityProviderClient(&http.Client{Transport: transport}, "http://"+l.Addr().String(), connect.WithGRPC(),
		connect.WithReadMaxBytes(256<<20)), l.Addr().String(), served.Addr
}

func quick(addr, control string, profiles ...conformance.Profile) conformance.Target {
	t := conformance.Target{Addr: addr, Profiles: profiles, Settle: 10 * time.Second, Watch: 100 * time.Millisecond, Limit: 2 * time.Second}
	if control != "" {
		t.Hooks.Faults = conformance.SubstrateControl(func() string { return control }, nil)
	}
	return t
}
