package rpc_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// WIRE-4.1: Connect, gRPC and gRPC-Web on one listener, over HTTP/2 and HTTP/1.1, plaintext and TLS.
func TestEveryProtocolOnOnePort(t *testing.T) {
	for _, secure := range []bool{false, true} {
		name := map[bool]string{false: "plaintext", true: "TLS"}[secure]
		t.Run(name, func(t *testing.T) {
			var mine, theirs *identity.Source
			if secure {
				ca := newCA(t)
				mine = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
				theirs = source(t, ca, devca.For(identity.ID{Kind: identity.Cluster, Name: "red"}))
			}
			p := start(t, &fleet{session: echo}, func(c *rpc.ServerConfig) { c.Identity = mine })
			for protocol, options := range map[rpc.Protocol]string{rpc.GRPC: "gRPC", rpc.Connect: "Connect", rpc.GRPCWeb: "gRPC-Web"} {
				t.Run(options+" over HTTP2", func(t *testing.T) {
					c := dial(t, p.addr, func(c *rpc.ClientConfig) { c.Protocol, c.Identity = protocol, theirs })
					resp, err := rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1"))
					if err != nil || resp.Msg.GetId() != "m1" {
						t.Fatalf("%v, %v", resp, err)
					}
					if protocol == rpc.GRPCWeb {
						return // gRPC-Web has no bidirectional streams in browsers; ours are for operators
					}
					s := rpc.Stub(c, api.NewShardClient).Session(within(t))
					for range 3 { // both directions at once
						if err := s.Send(hello("red")); err != nil {
							t.Fatal(err)
						}
						if got, err := s.Receive(); err != nil || got.GetAck().GetEcho() != "hello" {
							t.Fatalf("%v, %v", got, err)
						}
					}
					if err := s.CloseRequest(); err != nil {
						t.Fatal(err)
					}
					if _, err := s.Receive(); err == nil {
						t.Error("the stream went on after its end")
					}
					if err := s.CloseResponse(); err != nil {
						t.Error(err)
					}
				})
			}
			t.Run("HTTP1", func(t *testing.T) {
				transport, scheme := &http.Transport{}, "http"
				if secure {
					transport.TLSClientConfig, scheme = theirs.ClientConfig("127.0.0.1", nil, "http/1.1"), "https"
				}
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport}
				for _, options := range [][]connect.ClientOption{nil, {connect.WithProtoJSON()}, {connect.WithHTTPGet()}, {connect.WithGRPCWeb()}} {
					resp, err := api.NewCapacityProviderClient(client, scheme+"://"+p.addr, options...).Get(within(t), ref("m2"))
					if err != nil || resp.Msg.GetId() != "m2" {
						t.Errorf("%v, %v", resp, err)
					}
				}
			})
		})
	}
}

// OPS-3.1, WIRE-4.6, WIRE-4.8: what a person does with plain curl.
func TestPlainHTTPAndJSON(t *testing.T) {
	p := start(t, &fleet{}, nil)
	for _, send := range []func() (*http.Response, error){
		func() (*http.Response, error) {
			return http.Post("http://"+p.addr+"/bigfleet.v1alpha1.CapacityProvider/Get", "application/json", strings.NewReader(`{"id":"m1","misspelt":1}`))
		},
		func() (*http.Response, error) {
			return http.Get("http://" + p.addr + "/bigfleet.v1alpha1.CapacityProvider/Get?connect=v1&encoding=json&message=" + url.QueryEscape(`{"id":"m1"}`))
		},
	} {
		resp, err := send()
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"id":"m1"`) {
			t.Errorf("%s: %s", resp.Status, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// WIRE-2.3: health per service and reflection v1 and v1alpha on every port.
func TestHealthAndReflection(t *testing.T) {
	p := start(t, &fleet{}, nil)
	c := dial(t, p.addr, nil)
	health := grpchealth.NewClient(c.HTTP, c.BaseURL, c.Options...)
	check := func(service string) grpchealth.Status {
		t.Helper()
		got, err := health.Check(within(t), &grpchealth.CheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
	for _, service := range []string{"", api.ShardName, api.CapacityProviderName} {
		if check(service) != grpchealth.StatusServing {
			t.Errorf("%q is not serving", service)
		}
	}
	p.SetServing(api.ShardName, false)
	if check(api.ShardName) != grpchealth.StatusNotServing || check("") != grpchealth.StatusServing {
		t.Error("the status of one service must not move another's")
	}
	p.SetServing("", false)
	if check("") != grpchealth.StatusNotServing {
		t.Error("the process still serves")
	}
	_, err := health.Check(within(t), &grpchealth.CheckRequest{Service: "unknown"})
	wantCode(t, err, connect.CodeNotFound)

	stream := grpcreflect.NewClient(c.HTTP, c.BaseURL, c.Options...).NewStream(within(t))
	names, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{api.ShardName, api.ShardReadName, api.CapacityProviderName, grpchealth.HealthV1ServiceName} {
		found := false
		for _, name := range names {
			found = found || string(name) == want
		}
		if !found {
			t.Errorf("reflection does not list %s: %v", want, names)
		}
	}
	if _, err := stream.FileContainingSymbol("bigfleet.v1alpha1.Machine"); err != nil {
		t.Error(err)
	}
	if _, err := stream.Close(); err != nil {
		t.Error(err)
	}
	// v1alpha, as older tools ask.
	resp, err := c.HTTP.Post(c.BaseURL+"/"+grpcreflect.ReflectV1AlphaServiceName+"/ServerReflectionInfo", "application/grpc+proto", strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || slices.Contains(resp.Trailer.Values("Grpc-Status"), "12") {
		t.Errorf("reflection v1alpha: %s, %v", resp.Status, resp.Trailer)
	}
}

// Health watchers hear of a change and of the stop.
func TestHealthWatch(t *testing.T) {
	p := start(t, &fleet{}, nil)
	c := dial(t, p.addr, nil)
	events := grpchealth.NewClient(c.HTTP, c.BaseURL, c.Options...).Watch(within(t), &grpchealth.CheckRequest{Service: api.ShardName})
	next := func() grpchealth.WatchEvent {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-within(t).Done():
			t.Fatal("no event")
			return grpchealth.WatchEvent{}
		}
	}
	if e := next(); e.Err != nil || e.Response.Status != grpchealth.StatusServing {
		t.Fatalf("%+v", e)
	}
	p.SetServing(api.ShardName, false)
	if e := next(); e.Err != nil || e.Response.Status != grpchealth.StatusNotServing {
		t.Fatalf("%+v", e)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.Err == nil && e.Response.Status == grpchealth.StatusServing {
			t.Errorf("%+v after the stop", e)
		}
	}
}

// Two servers in one process share nothing: health, access, limits are of each.
func TestTwoServersShareNothing(t *testing.T) {
	one := start(t, &fleet{}, nil)
	two := start(t, &fleet{}, nil)
	one.SetServing("", false)
	c := dial(t, two.addr, nil)
	got, err := grpchealth.NewClient(c.HTTP, c.BaseURL, c.Options...).Check(within(t), &grpchealth.CheckRequest{})
	if err != nil || got.Status != grpchealth.StatusServing {
		t.Errorf("%+v, %v", got, err)
	}
	if err := one.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1")); err != nil {
		t.Errorf("the second server went with the first: %v", err)
	}
}

// A role in the same process is reached through memory with the same protocol, and counts as loopback.
func TestMemListener(t *testing.T) {
	ln := rpc.NewMemListener("shard-0")
	p := startOn(t, ln, &fleet{session: echo}, nil)
	c := dial(t, "shard-0:0", func(c *rpc.ClientConfig) { c.Dial = ln.DialContext })
	s := rpc.Stub(c, api.NewShardClient).Session(within(t))
	if err := s.Send(hello("red")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	_, err := rpc.Stub(c, api.NewShardAdminClient).PauseActuation(within(t), connect.NewRequest(&pb.PauseActuationRequest{Reason: "a test"}))
	if err != nil {
		t.Errorf("an in-process peer is loopback: %v", err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Receive()
	wantCode(t, err, connect.CodeUnavailable)
	_, err = rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1"))
	wantCode(t, err, connect.CodeUnavailable)
	if !rpc.NotSent(err) {
		t.Errorf("a closed listener proves that nothing was sent: %v", err)
	}
}
