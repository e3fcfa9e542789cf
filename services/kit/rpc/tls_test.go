package rpc_test

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// OPS-8.3, SHARD-22.3: a leaf and a CA are replaced while a session is open. The session lives on, new connections
// show the new certificate, and a client of the dropped CA is refused.
func TestReloadUnderLiveConnections(t *testing.T) {
	one, two := newCA(t), newCA(t)
	dir := t.TempDir()
	shard := identity.ID{Kind: identity.Shard, Name: "a"}
	files, err := one.Write(dir, "tls", devca.For(shard))
	if err != nil {
		t.Fatal(err)
	}
	server, err := identity.Load(files, identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, &fleet{session: echo}, func(c *rpc.ServerConfig) { c.Identity = server })

	red := identity.ID{Kind: identity.Cluster, Name: "red"}
	clientFiles, err := one.Write(t.TempDir(), "tls", devca.For(red))
	if err != nil {
		t.Fatal(err)
	}
	client, err := identity.Load(clientFiles, identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	open := func(seen *identity.ID) *rpc.Client {
		return dial(t, p.addr, func(c *rpc.ClientConfig) {
			c.Identity = client
			c.Server = func(id identity.ID) error { *seen = id; return nil }
		})
	}
	var seen identity.ID
	session := rpc.Stub(open(&seen), api.NewShardClient).Session(within(t))
	talk := func() {
		t.Helper()
		if err := session.Send(hello("red")); err != nil {
			t.Fatal(err)
		}
		if _, err := session.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	talk()
	if seen != shard {
		t.Errorf("the server is %v", seen)
	}

	// CA rotation as the runbook has it: both roots everywhere, leaves of the new CA, the old root goes.
	both := append(one.PEM(), two.PEM()...)
	if err := errors.Join(os.WriteFile(files.CA, both, 0o600), os.WriteFile(clientFiles.CA, both, 0o600), server.Check(), client.Check()); err != nil {
		t.Fatal(err)
	}
	renewed := identity.ID{Kind: identity.Shard, Name: "a"}
	if _, err := two.Write(dir, "tls", devca.For(renewed)); err != nil { // this also makes two the only root of the server
		t.Fatal(err)
	}
	if err := server.Check(); err != nil {
		t.Fatal(err)
	}
	talk()
	var late identity.ID
	_, err = rpc.Stub(open(&late), api.NewCapacityProviderClient).Get(within(t), ref("m1"))
	if err == nil {
		t.Fatal("a client certificate of the dropped CA was accepted")
	}
	if late != renewed {
		t.Errorf("the client saw %v", late)
	}
	certPEM, keyPEM, err := two.Issue(devca.For(red))
	if err := errors.Join(err, os.WriteFile(clientFiles.Cert, certPEM, 0o600), os.WriteFile(clientFiles.Key, keyPEM, 0o600), client.Check()); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.Stub(open(&late), api.NewCapacityProviderClient).Get(within(t), ref("m1")); err != nil {
		t.Fatalf("with a leaf of the new CA: %v", err)
	}
	talk() // the session of the old certificates is still there
	_, _ = session.CloseRequest(), session.CloseResponse()
}

// OP-3.7, COORD-6.3.5: a server with another identity gets no frame, and the error proves that nothing was sent.
func TestWrongServerIdentity(t *testing.T) {
	ca := newCA(t)
	called := false
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
		c.OnRefused = func(rpc.Refusal) { called = true }
	})
	c := dial(t, p.addr, func(c *rpc.ClientConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Cluster, Name: "red"}))
		c.Server = identity.Accept(identity.Coordinator, identity.Admin)
	})
	_, err := rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1"))
	wantCode(t, err, connect.CodeUnavailable)
	if !rpc.NotSent(err) || !strings.Contains(err.Error(), "bigfleet://shard/a") {
		t.Errorf("%v: want a DialError that names the server's identity", err)
	}
	if called {
		t.Error("a call reached the server")
	}
}

// A plaintext client on a TLS port and a TLS client on a plaintext port both fail with UNAVAILABLE or similar, never
// hang and never fall back.
func TestNoFallback(t *testing.T) {
	ca := newCA(t)
	secure := start(t, &fleet{}, func(c *rpc.ServerConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
	})
	plain := start(t, &fleet{}, nil)
	if _, err := rpc.Stub(dial(t, secure.addr, nil), api.NewCapacityProviderClient).Get(within(t), ref("m1")); err == nil {
		t.Error("plaintext was served on a TLS port")
	}
	c := dial(t, plain.addr, func(c *rpc.ClientConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Cluster, Name: "red"}))
	})
	_, err := rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1"))
	if !rpc.NotSent(err) {
		t.Errorf("TLS on a plaintext port: %v", err)
	}
}

// The read RPC tells the caller who it is taken for: identity reaches the handler on every protocol.
func TestPeerReachesHandler(t *testing.T) {
	ca := newCA(t)
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
	})
	for _, protocol := range []rpc.Protocol{rpc.GRPC, rpc.Connect, rpc.GRPCWeb} {
		c := dial(t, p.addr, func(c *rpc.ClientConfig) {
			c.Protocol = protocol
			c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Cluster, Name: "arn:aws:eks/red"}))
		})
		resp, err := rpc.Stub(c, api.NewShardReadClient).ListMachines(within(t), connect.NewRequest(&pb.ListMachinesRequest{}))
		if err != nil || resp.Msg.GetNextPageToken() != "bigfleet://cluster/arn:aws:eks/red" {
			t.Errorf("%v, %v", resp, err)
		}
	}
}
