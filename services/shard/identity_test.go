package shard_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// authority is a CA with what a test makes of it.
type authority struct {
	t  *testing.T
	ca *devca.CA
}

func newAuthority(t *testing.T, name string) *authority {
	ca, err := devca.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, ca}
}

// files issues a certificate with these URI SANs.
func (a *authority) files(name string, lifetime time.Duration, uris ...string) identity.Files {
	a.t.Helper()
	dir := a.t.TempDir()
	f, err := a.ca.Write(dir, name, devca.Request{URIs: uris, Hosts: []string{"127.0.0.1", "localhost"}, Lifetime: lifetime})
	if err != nil {
		a.t.Fatal(err)
	}
	return f
}

func (a *authority) source(f identity.Files) *identity.Source {
	a.t.Helper()
	s, err := identity.Load(f, identity.Options{})
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// trusting is a set of files that trusts another authority than the one it is from.
func trusting(f identity.Files, a *authority) identity.Files {
	f.CA = a.files("ca", 0).CA
	return f
}

// secure starts a shard and a provider under mTLS.
func secure(t *testing.T, a *authority) *running {
	t.Helper()
	p := NewProvider(slots(2)...)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.Addr = ln.Addr().String()
	t.Cleanup(p.ServeOn(t, ln, a.source(a.files("provider", 0))))
	return start(t, p, func(c *shard.Config) { c.TLS = a.files("shard", 0, "bigfleet://shard/shard-0") })
}

// dialAs dials with a certificate, says Hello for a cluster, and returns what came first.
func dialAs(t *testing.T, addr string, id *identity.Source, cluster string) error {
	t.Helper()
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Log: slog.New(slog.DiscardHandler), Identity: id, Limits: rpc.Limits{ReadMaxBytes: 64 << 20, SendMaxBytes: 64 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := rpc.Stub(c, bigfleetv1alpha1connect.NewShardClient).Session(ctx)
	_ = s.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1"}}})
	m, err := s.Receive()
	_ = s.CloseRequest()
	_ = s.CloseResponse()
	if err == nil && m.GetAck().GetEcho() != "hello" {
		t.Errorf("the first frame is %v", m)
	}
	return err
}

// Scenario 16, SHARD-7.2, 7.8, 22.2: only a certificate whose single bigfleet:// SAN is the cluster's own opens its
// session. A forger, one without or with two identities, a reader, one whose certificate has ended, and one of another
// fleet are refused before anything is installed, and the genuine session continues.
func TestOnlyTheClusterItselfOpensItsSession(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	s := secure(t, ours)
	red := ours.source(ours.files("red", 0, "bigfleet://cluster/red"))
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: s.Addr, Log: slog.New(slog.DiscardHandler), Identity: red, Limits: rpc.Limits{ReadMaxBytes: 64 << 20, SendMaxBytes: 64 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	genuine := OpenOn(t, c, "red", AllFeatures...)
	Await(t, genuine, "the hello ack", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "hello" })
	for name, x := range map[string]struct {
		id      *identity.Source
		refused bool // by the shard; otherwise the handshake fails
	}{
		"another cluster":       {ours.source(ours.files("x", 0, "bigfleet://cluster/blue")), true},
		"a longer name":         {ours.source(ours.files("x", 0, "bigfleet://cluster/red/")), true},
		"no identity":           {ours.source(ours.files("x", 0)), true},
		"two identities":        {ours.source(ours.files("x", 0, "bigfleet://cluster/red", "bigfleet://cluster/blue")), true},
		"an administrator":      {ours.source(ours.files("x", 0, "bigfleet://admin")), true},
		"a shard":               {ours.source(ours.files("x", 0, "bigfleet://shard/shard-0")), true},
		"a foreign fleet's red": {theirs.source(trusting(theirs.files("x", 0, "bigfleet://cluster/red"), ours)), false},
		"an ended certificate":  {ours.source(ours.files("x", -time.Hour, "bigfleet://cluster/red")), false},
	} {
		err := dialAs(t, s.Addr, x.id, "red")
		switch code := connect.CodeOf(err); {
		case err == nil:
			t.Errorf("%s was let in", name)
		case x.refused && code != connect.CodePermissionDenied:
			t.Errorf("%s: %v", name, err)
		case !x.refused && code == connect.CodePermissionDenied:
			t.Errorf("%s came as far as the shard: %v", name, err)
		}
	}
	if n := s.metric(t, "bigfleet_shard_session_identity_rejected_total"); n != 6 {
		t.Errorf("%v refusals are counted", n)
	}
	genuine.Rollup(Need("4", 0))
	Await(t, genuine, "the ack of a roll-up", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "rollup" })
	if genuine.Err() != nil {
		t.Errorf("the genuine session ended: %v", genuine.Err())
	}
}

// Scenario 62, SHARD-22.2, 22.5, 23.6: every RPC of ShardRead and ShardAdmin with every identity.
func TestRightsOfEveryRPC(t *testing.T) {
	ours := newAuthority(t, "ours")
	s := secure(t, ours)
	clusterMayNot := map[string]bool{"GetStatus": true, "Plan": true, "CompareCycles": true, "GetCost": true}
	for name, who := range map[string]struct {
		uri         string
		read, admin bool
	}{
		"cluster":  {"bigfleet://cluster/red", true, false},
		"readonly": {"bigfleet://readonly", true, false},
		"admin":    {"bigfleet://admin", true, true},
		"shard":    {"bigfleet://shard/shard-1", false, false},
		"stranger": {"spiffe://somebody/else", false, false},
	} {
		c, err := rpc.NewClient(rpc.ClientConfig{Addr: s.Addr, Log: slog.New(slog.DiscardHandler), Identity: ours.source(ours.files("x", 0, who.uri)), Limits: rpc.ReadClientLimits()})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, service := range []protoreflect.ServiceDescriptor{pb.File_bigfleet_v1alpha1_shardread_proto.Services().ByName("ShardRead"),
			pb.File_bigfleet_v1alpha1_shardadmin_proto.Services().ByName("ShardAdmin")} {
			admin := service.Name() == "ShardAdmin"
			for i := range service.Methods().Len() {
				m := service.Methods().Get(i)
				may := who.read && !admin || who.admin && admin
				if name == "cluster" && clusterMayNot[string(m.Name())] {
					may = false
				}
				n++
				if refused := denied(t, c, m); refused == may {
					t.Errorf("%s on %s: refused %v", name, m.FullName(), refused)
				}
			}
		}
		if n < 20 {
			t.Errorf("only %d RPCs were found", n)
		}
		c.CloseIdle()
	}
}

// denied calls an RPC with an empty request, in the Connect protocol, and reports whether it was PERMISSION_DENIED.
func denied(t *testing.T, c *rpc.Client, m protoreflect.MethodDescriptor) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	body, kind := []byte("{}"), "application/json"
	if m.IsStreamingServer() {
		body, kind = append(binary.BigEndian.AppendUint32([]byte{0}, 2), "{}"...), "application/connect+json"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL+"/"+string(m.Parent().FullName())+"/"+string(m.Name()), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	a, err := c.HTTP.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", m.FullName(), err)
	}
	defer a.Body.Close()
	raw, _ := io.ReadAll(a.Body) // a stream that follows ends with the deadline
	return a.StatusCode == http.StatusForbidden || strings.Contains(string(raw), "permission_denied")
}

// Scenario 67, SHARD-22.1, 22.3: TLS files that are not all there, do not belong together or are no certificates are start
// errors; which one is named. (What happens to files that change later is tested in sdk/identity.)
func TestBadTLSFilesAtTheStart(t *testing.T) {
	ours := newAuthority(t, "ours")
	good, other := ours.files("a", 0, "bigfleet://shard/shard-0"), ours.files("b", 0, "bigfleet://shard/shard-0")
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]identity.Files{
		"no key":            {Cert: good.Cert, CA: good.CA},
		"no certificate":    {Key: good.Key, CA: good.CA},
		"no authority":      {Cert: good.Cert, Key: good.Key},
		"only a key":        {Key: good.Key},
		"a foreign key":     {Cert: good.Cert, Key: other.Key, CA: good.CA},
		"an empty file":     {Cert: empty, Key: good.Key, CA: good.CA},
		"a missing file":    {Cert: empty + "x", Key: good.Key, CA: good.CA},
		"no CA in the file": {Cert: good.Cert, Key: good.Key, CA: good.Key},
	} {
		tel, err := telemetry.New(t.Context(), telemetry.Config{Component: "shard", LogWriter: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err = shard.Run(ctx, shard.Config{ID: "shard-0", DataDir: t.TempDir(), Listen: "127.0.0.1:0", Telemetry: tel, TLS: f,
			Providers: []shard.Provider{{Name: "p", Addr: "127.0.0.1:1"}}})
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s: the shard started", name)
		}
		cancel()
		_ = tel.Close(context.Background())
	}
}
