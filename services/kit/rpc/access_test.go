package rpc_test

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// calls makes one call of each kind and returns the code of each; 0 is success.
func calls(t *testing.T, c *rpc.Client) (read, admin, provider connect.Code) {
	t.Helper()
	code := func(err error) connect.Code {
		if err == nil {
			return 0
		}
		return connect.CodeOf(err)
	}
	_, err := rpc.Stub(c, api.NewShardReadClient).ListMachines(within(t), connect.NewRequest(&pb.ListMachinesRequest{}))
	read = code(err)
	_, err = rpc.Stub(c, api.NewShardAdminClient).PauseActuation(within(t), connect.NewRequest(&pb.PauseActuationRequest{Reason: "a test"}))
	admin = code(err)
	_, err = rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1"))
	return read, admin, code(err)
}

// WIRE-2.5, SHARD-22.2: the table of who may call what, and PERMISSION_DENIED for zero, several and unknown identities.
func TestAccessUnderTLS(t *testing.T) {
	ca := newCA(t)
	var mu sync.Mutex
	var refused []rpc.Refusal
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
		c.OnRefused = func(r rpc.Refusal) {
			mu.Lock()
			defer mu.Unlock()
			refused = append(refused, r)
		}
	})
	const ok, denied = connect.Code(0), connect.CodePermissionDenied
	want := 0
	for name, test := range map[string]struct {
		uris                  []string
		read, admin, provider connect.Code
	}{
		"admin":       {[]string{"bigfleet://admin"}, ok, ok, denied},
		"readonly":    {[]string{"bigfleet://readonly"}, ok, denied, denied},
		"cluster":     {[]string{"bigfleet://cluster/arn:x/y"}, ok, denied, ok},
		"shard":       {[]string{"bigfleet://shard/b"}, denied, denied, ok},
		"coordinator": {[]string{"bigfleet://coordinator/n"}, denied, denied, denied},
		"none":        {nil, denied, denied, denied},
		"several":     {[]string{"bigfleet://admin", "bigfleet://readonly"}, denied, denied, denied},
		"unknown":     {[]string{"bigfleet://root"}, denied, denied, denied},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, p.addr, func(c *rpc.ClientConfig) { c.Identity = source(t, ca, devca.Request{URIs: test.uris}) })
			read, admin, provider := calls(t, c)
			for _, code := range []connect.Code{test.read, test.admin, test.provider} {
				if code != ok {
					want++
				}
			}
			if read != test.read || admin != test.admin || provider != test.provider {
				t.Errorf("read %v, admin %v, provider %v, want %v, %v, %v", read, admin, provider, test.read, test.admin, test.provider)
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if len(refused) != want {
		t.Errorf("%d refusals were reported, want %d", len(refused), want)
	}
	for _, r := range refused {
		if r.Procedure == "" || r.Err == nil || !r.Peer.TLS || r.Peer.Addr == "" {
			t.Errorf("%+v", r)
		}
	}
	if got := p.logs.String(); !strings.Contains(got, "permission_denied") || !strings.Contains(got, "bigfleet://readonly") {
		t.Errorf("the log does not name the refused peer:\n%s", got)
	}
}

// farListener makes every peer look as if it came from another host.
type farListener struct{ net.Listener }

type farConn struct{ net.Conn }

func (l farListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return farConn{conn}, err
}

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 4711} }

// WIRE-2.5, SHARD-22.5: on plaintext, checks are skipped, but mutating admin RPCs are served to loopback peers only.
func TestAccessOnPlaintext(t *testing.T) {
	far := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return farListener{ln}
	}
	for name, test := range map[string]struct {
		port  *port
		admin connect.Code
	}{
		"loopback":           {start(t, &fleet{}, nil), 0},
		"elsewhere":          {startOn(t, far(), &fleet{}, nil), connect.CodePermissionDenied},
		"with InsecureAdmin": {startOn(t, far(), &fleet{}, func(c *rpc.ServerConfig) { c.InsecureAdmin = true }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			read, admin, provider := calls(t, dial(t, test.port.addr, nil))
			if read != 0 || provider != 0 || admin != test.admin {
				t.Errorf("read %v, admin %v, provider %v, want admin %v and no other refusal", read, admin, provider, test.admin)
			}
		})
	}
}

// A handler that decides for itself finds the peer: Require and RequireID speak WIRE-2.5.
func TestPeerInHandler(t *testing.T) {
	red := identity.ID{Kind: identity.Cluster, Name: "red"}
	secure := rpc.Peer{TLS: true, ID: red}
	if err := errors.Join(secure.Require(identity.Cluster), secure.RequireID(red)); err != nil {
		t.Error(err)
	}
	wantCode(t, secure.Require(identity.Admin), connect.CodePermissionDenied)
	wantCode(t, secure.RequireID(identity.ID{Kind: identity.Cluster, Name: "blue"}), connect.CodePermissionDenied)
	wantCode(t, rpc.Peer{TLS: true, Err: identity.ErrNone}.Require(identity.Cluster), connect.CodePermissionDenied)
	wantCode(t, rpc.Peer{TLS: true, Err: identity.ErrNone}.RequireID(identity.ID{}), connect.CodePermissionDenied)
	plain := rpc.Peer{Addr: "10.0.0.1:1"}
	if err := errors.Join(plain.Require(identity.Admin), plain.RequireID(red)); err != nil {
		t.Errorf("plaintext skips the checks: %v", err)
	}
	ctx := rpc.WithPeer(t.Context(), secure)
	if got := rpc.PeerFrom(ctx); got.ID != red || got.String() != "bigfleet://cluster/red" {
		t.Errorf("%+v", got)
	}
	if got := rpc.PeerFrom(t.Context()); got != (rpc.Peer{}) {
		t.Errorf("outside a call: %+v", got)
	}
}

// A forgotten rule, a rule for nothing, missing limits: start errors that name what is wrong, all at once.
func TestNewServerRefusesGaps(t *testing.T) {
	mount := func(o ...connect.HandlerOption) (string, http.Handler) { return api.NewShardHandler(&fleet{}, o...) }
	limits := rpc.Limits{ReadMaxBytes: 1, SendMaxBytes: 1}
	all := rpc.AllowAll(api.ShardName, rpc.HandlerDecides())
	for name, test := range map[string]struct {
		service rpc.Service
		want    string
	}{
		"no limits":       {rpc.Service{Name: api.ShardName, Access: all, New: mount}, "ReadMaxBytes"},
		"no rule":         {rpc.Service{Name: api.ShardName, Limits: limits, New: mount}, "/bigfleet.v1alpha1.Shard/Session has no rule"},
		"rule too many":   {rpc.Service{Name: api.ShardName, Limits: limits, New: mount, Access: rpc.AllowAll(api.ShardReadName, rpc.Allow())}, "does not exist"},
		"no handler":      {rpc.Service{Name: api.ShardName, Limits: limits, Access: all}, "New is required"},
		"unknown service": {rpc.Service{Name: "bigfleet.v1alpha1.Nothing", Limits: limits, New: mount}, "Nothing"},
		"other handler":   {rpc.Service{Name: api.ShardReadName, Limits: limits, New: mount, Access: rpc.AllowAll(api.ShardReadName, rpc.Allow())}, "New mounts /bigfleet.v1alpha1.Shard/"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Services: []rpc.Service{test.service}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", err, test.want)
			}
		})
	}
	if _, err := rpc.NewServer(rpc.ServerConfig{}); err == nil {
		t.Error("a server without a log was made")
	}
	for _, c := range []rpc.ClientConfig{
		{Addr: "nohost", Limits: limits}, {Addr: "http://a:1", Limits: limits}, {Addr: "a:1"}, {Addr: "a:1", Limits: limits, Protocol: 9},
	} {
		if _, err := rpc.NewClient(c); err == nil {
			t.Errorf("%+v made a client", c)
		}
	}
}

// WIRE-2.5's rows follow from the markings of the protos: what is marked without side effects is a read.
func TestAllowByEffect(t *testing.T) {
	ca := newCA(t)
	readers := []identity.Kind{identity.ReadOnly, identity.Admin}
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
		for i := range c.Services {
			c.Services[i].Access = rpc.AllowByEffect(c.Services[i].Name, readers, []identity.Kind{identity.Admin})
		}
	})
	c := dial(t, p.addr, func(c *rpc.ClientConfig) {
		c.Identity = source(t, ca, devca.Request{URIs: []string{"bigfleet://readonly"}})
	})
	read, admin, provider := calls(t, c)
	if read != 0 || admin != connect.CodePermissionDenied || provider != 0 {
		t.Errorf("read %v, admin %v, provider Get %v", read, admin, provider)
	}
	_, err := rpc.Stub(c, api.NewCapacityProviderClient).Delete(within(t), connect.NewRequest(&pb.DeleteRequest{}))
	wantCode(t, err, connect.CodePermissionDenied)
}
