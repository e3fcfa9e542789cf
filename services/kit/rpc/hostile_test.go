package rpc_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// bomb is a message of the given size that gzip makes a thousandth of: an unknown field full of zeros.
func bomb(t *testing.T, size int) []byte {
	t.Helper()
	plain := protowire.AppendTag(nil, 15000, protowire.BytesType)
	plain = protowire.AppendBytes(plain, make([]byte, size))
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// send posts a compressed body, in an envelope where the procedure streams, and returns the answer.
func send(t *testing.T, c *rpc.Client, procedure string, stream bool, body []byte) string {
	t.Helper()
	kind := "application/proto"
	if stream {
		kind = "application/connect+proto"
		body = append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(body))), body...)
	}
	req, err := http.NewRequestWithContext(within(t), http.MethodPost, c.BaseURL+procedure, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Connect-Content-Encoding", "gzip")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if at := bytes.Index(text, []byte{0x1f, 0x8b}); at >= 0 { // answers are compressed as their request is
		if z, err := gzip.NewReader(bytes.NewReader(text[at:])); err == nil {
			text, _ = io.ReadAll(z)
		}
	}
	return string(text)
}

// procedures are all RPCs of the test services, and whether they stream.
func procedures() map[string]bool {
	out := map[string]bool{}
	for _, service := range []protoreflect.ServiceDescriptor{
		pb.File_bigfleet_v1alpha1_shard_proto.Services().ByName("Shard"), pb.File_bigfleet_v1alpha1_shardread_proto.Services().ByName("ShardRead"),
		pb.File_bigfleet_v1alpha1_shardadmin_proto.Services().ByName("ShardAdmin"), pb.File_bigfleet_v1alpha1_provider_proto.Services().ByName("CapacityProvider"),
	} {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			out["/"+string(service.FullName())+"/"+string(m.Name())] = m.IsStreamingClient() || m.IsStreamingServer()
		}
	}
	return out
}

// WIRE-4.4: a certificate without rights is refused before its body is read: compressed requests of 64 MiB on every RPC, five of
// each at a time, allocate less than 64 MiB together.
func TestRefusedBodiesCostNothing(t *testing.T) {
	ca := newCA(t)
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
		for i := range c.Services {
			c.Services[i].Limits = rpc.Limits{ReadMaxBytes: 256 << 20, SendMaxBytes: 256 << 20}
		}
		c.Services[0].Access = rpc.AllowAll(api.ShardName, rpc.HandlerDecides(identity.Cluster))
	})
	body := bomb(t, 64<<20)
	c := dial(t, p.addr, func(c *rpc.ClientConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Coordinator, Name: "n"}))
	})
	send(t, c, api.ShardSessionProcedure, true, nil) // the connection is there
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for procedure, stream := range procedures() {
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if got := send(t, c, procedure, stream, body); !strings.Contains(got, "permission_denied") {
					t.Errorf("%s: %.200s", procedure, got)
				}
			})
		}
		all.Wait()
	}
	runtime.ReadMemStats(&after)
	if cost := (after.TotalAlloc - before.TotalAlloc) >> 20; cost >= 64 {
		t.Errorf("refused requests allocated %d MiB", cost)
	}
}

// WIRE-4.4: an RPC may have a lower limit than its service.
func TestReadLimitByMethod(t *testing.T) {
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) {
		c.Services[2].ReadMaxBytes = map[string]int{api.ShardReadListMachinesProcedure: 1 << 10}
	})
	c := dial(t, p.addr, nil)
	if got := send(t, c, api.ShardReadListMachinesProcedure, false, bomb(t, 2<<10)); !strings.Contains(got, "resource_exhausted") {
		t.Errorf("a request above the limit of its RPC: %s", got)
	}
	if got := send(t, c, api.ShardReadGetMachineProcedure, false, bomb(t, 2<<10)); strings.Contains(got, "resource_exhausted") {
		t.Errorf("a request of another RPC: %s", got)
	}
	config := rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Services: services(&fleet{})}
	config.Services[2].ReadMaxBytes = map[string]int{api.ShardReadListMachinesProcedure: frameMax + 1}
	if _, err := rpc.NewServer(config); err == nil {
		t.Error("a limit above that of the service is accepted")
	}
}

// SHARD-22.2: one certificate cannot take the calls and connections of others.
func TestPeerLimits(t *testing.T) {
	ca := newCA(t)
	hold := make(chan struct{})
	p := start(t, &fleet{get: func(ctx context.Context, m *pb.MachineRef) (*pb.Machine, error) {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return &pb.Machine{Id: m.GetId()}, nil
	}}, func(c *rpc.ServerConfig) {
		c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
		c.PeerConnectionsMax, c.PeerCallsMax = 2, 3
	})
	as := func(name string) *rpc.Client {
		return dial(t, p.addr, func(c *rpc.ClientConfig) {
			c.Identity = source(t, ca, devca.For(identity.ID{Kind: identity.Shard, Name: name}))
		})
	}
	greedy := as("b")
	var all sync.WaitGroup
	codes := make(chan connect.Code, 8)
	for range 8 {
		all.Go(func() {
			_, err := rpc.Stub(greedy, api.NewCapacityProviderClient).Get(within(t), ref("m"))
			if err != nil {
				codes <- connect.CodeOf(err)
			}
		})
	}
	for range 5 {
		if code := <-codes; code != connect.CodeResourceExhausted {
			t.Errorf("got %v", code)
		}
	}
	quick := as("c")
	if _, err := rpc.Stub(quick, api.NewShardReadClient).ListMachines(within(t), connect.NewRequest(&pb.ListMachinesRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another certificate: %v", err)
	}
	close(hold)
	all.Wait()
	if _, err := rpc.Stub(greedy, api.NewCapacityProviderClient).Get(within(t), ref("m")); err != nil {
		t.Errorf("after its calls ended: %v", err)
	}
	second, third := as("b"), as("b")
	if _, err := rpc.Stub(second, api.NewCapacityProviderClient).Get(within(t), ref("m")); err != nil {
		t.Errorf("its second connection: %v", err)
	}
	_, err := rpc.Stub(third, api.NewCapacityProviderClient).Get(within(t), ref("m"))
	wantCode(t, err, connect.CodeResourceExhausted)
	second.CloseIdle()
	for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		_, err = rpc.Stub(third, api.NewCapacityProviderClient).Get(within(t), ref("m"))
	}
	if err != nil {
		t.Errorf("after a connection was closed: %v", err)
	}
}

// A plaintext request that reaches loopback under another host's name is a browser that was sent here by DNS rebinding.
func TestHostOfLoopbackRequests(t *testing.T) {
	p := start(t, &fleet{}, nil)
	_, port, _ := strings.Cut(p.addr, ":")
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "console.localhost": 200, "[::1]:" + port: 200,
		"evil.example:" + port: 421, "evil.example": 421, "localhost.evil.example": 421,
	} {
		req, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+p.addr+api.ShardReadListMachinesProcedure, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
