package coordinator_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	kitrpc "github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// pki issues the certificates of one test.
type pki struct {
	t   *testing.T
	ca  *devca.CA
	dir string
	n   int
}

func newPKI(t *testing.T) *pki {
	ca, err := devca.New("test")
	if err != nil {
		t.Fatal(err)
	}
	return &pki{t: t, ca: ca, dir: t.TempDir()}
}

func (p *pki) files(r devca.Request) identity.Files {
	p.t.Helper()
	p.n++
	dir := fmt.Sprintf("%s/%d", p.dir, p.n)
	if err := os.Mkdir(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	f, err := p.ca.Write(dir, "leaf", r)
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *pki) source(r devca.Request) *identity.Source {
	p.t.Helper()
	s, err := identity.Load(p.files(r), identity.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *pki) replica(i int) identity.Files {
	return p.files(devca.For(identity.ID{Kind: identity.Coordinator, Name: id(i)}, id(i)))
}

func person(kind identity.Kind, name string) devca.Request {
	return devca.For(identity.ID{Kind: kind, Name: name})
}

// rpcs lists every RPC of a service and whether it only reads.
func rpcs(t *testing.T, service string) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]protoreflect.MethodDescriptor{}
	methods := d.(protoreflect.ServiceDescriptor).Methods()
	for i := range methods.Len() {
		out["/"+service+"/"+string(methods.Get(i).Name())] = methods.Get(i)
	}
	return out
}

// COORD-21.53, 14.1 to 14.4, WIRE-2.5: every RPC against every kind of certificate.
func TestWhoMayCallWhat(t *testing.T) {
	p := newPKI(t)
	r := newReplicas(t, 1)
	r.tls = p.replica
	r.startAll()
	r.group(r.client(p.source(person(identity.Admin, ""))), 1)

	stranger := &pki{t: t, dir: t.TempDir()}
	var err error
	if stranger.ca, err = devca.New("another"); err != nil {
		t.Fatal(err)
	}
	two := person(identity.Admin, "")
	two.URIs = append(two.URIs, "bigfleet://readonly")
	none := person(identity.Admin, "")
	none.URIs = nil
	expired := person(identity.Admin, "")
	expired.Lifetime = -time.Minute
	trusting := func(stranger *pki, r devca.Request) *identity.Source { // it believes the server, and not the other way round
		f := stranger.files(r)
		if err := os.WriteFile(f.CA, append(stranger.ca.PEM(), p.ca.PEM()...), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := identity.Load(f, identity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	callers := map[string]*identity.Source{
		"none": nil, "cluster": p.source(person(identity.Cluster, "red")), "shard": p.source(person(identity.Shard, "shard-0")),
		"other shard": p.source(person(identity.Shard, "shard-1")), "readonly": p.source(person(identity.ReadOnly, "")),
		"admin": p.source(person(identity.Admin, "")), "coordinator": p.source(person(identity.Coordinator, "node-7")),
		"two names": p.source(two), "no name": p.source(none), "expired": p.source(expired), "wrong CA": trusting(stranger, person(identity.Admin, "")),
	}
	for _, service := range []string{"bigfleet.v1alpha1.Coordinator", "bigfleet.v1alpha1.CoordinatorAdmin"} {
		for procedure, method := range rpcs(t, service) {
			options, _ := method.Options().(*descriptorpb.MethodOptions)
			reads := options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
			for who, source := range callers {
				may := who == "admin" || who == "readonly" && reads
				switch string(method.Name()) {
				case "ReportShard":
					may = who == "shard"
				case "JoinRaftCluster":
					may = who == "coordinator"
				case "GetCoordinatorStatus":
					may = may || who == "coordinator"
				case "TransferLeadership", "RemoveRaftPeer":
					continue // they would change the group; the table of access is the same one
				}
				err := r.try(0, source, procedure, method)
				code := connect.CodeOf(err)
				switch who {
				case "none", "expired", "wrong CA":
					if err == nil || connect.IsWireError(err) {
						t.Errorf("%s as %s: %v, want no connection", procedure, who, err)
					}
				default:
					if denied := err != nil && code == connect.CodePermissionDenied; denied == may {
						t.Errorf("%s as %s: %v, allowed is %v", procedure, who, err, may)
					}
				}
			}
		}
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

// COORD-14.1, WIRE-2.5: without TLS, orders are taken from loopback peers only, unless --insecure-admin; reports and reads pass.
func TestPlaintextOrdersFromElsewhere(t *testing.T) {
	for _, insecure := range []bool{false, true} {
		r, c := single(t, func(c *coordinator.Config) {
			c.Listener, c.InsecureAdmin = farListener{c.Listener}, insecure
		})
		order := &v1.SetRebalanceRequest{Policy: &v1.RebalancePolicy{Mode: v1.RebalanceMode_REBALANCE_MODE_OFF}}
		if insecure {
			must(t, c, admin.SetRebalance, order)
		} else {
			refused(t, c, connect.CodePermissionDenied, admin.SetRebalance, order)
		}
		must(t, c, core.ListShards, &v1.ListShardsRequest{})
		r.stopAll()
	}
}

// COORD-7.1, 6.2.5: a report is refused for its arguments before its sender, and for its sender before anything of it is
// kept: no one registers another shard, not even an admin.
func TestWhoseReport(t *testing.T) {
	p := newPKI(t)
	r := newReplicas(t, 1)
	r.tls = p.replica
	r.startAll()
	admins := r.client(p.source(person(identity.Admin, "")))
	r.group(admins, 1)
	shard := r.client(p.source(person(identity.Shard, "shard-0")))
	refused(t, shard, connect.CodeInvalidArgument, core.ReportShard, report("not an id", 1))
	refused(t, shard, connect.CodePermissionDenied, core.ReportShard, report("shard-1", 1))
	refused(t, admins, connect.CodePermissionDenied, core.ReportShard, report("shard-1", 1))
	must(t, shard, core.ReportShard, report("shard-0", 1))
	if got := must(t, admins, core.ListShards, &v1.ListShardsRequest{}).GetShards(); len(got) != 1 || got[0].GetShardId() != "shard-0" {
		t.Fatalf("%v", got)
	}
}

// try calls one RPC with as little as it needs to get past the checks of arguments, and returns what it was refused with.
func (r *replicas) try(replica int, source *identity.Source, procedure string, method protoreflect.MethodDescriptor) error {
	t := r.t
	t.Helper()
	client, err := kitrpc.NewClient(kitrpc.ClientConfig{Addr: rpc(replica), Limits: kitrpc.ReadClientLimits(), Identity: source, Dial: r.net.Dialer("client")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	scheme := "http://"
	if source != nil {
		scheme = "https://"
	}
	url := scheme + rpc(replica) + procedure
	switch string(method.Name()) {
	case "ReportShard":
		_, err = connect.NewClient[v1.ShardReport, emptypb.Empty](client.HTTP, url, client.Options...).CallUnary(ctx, connect.NewRequest(report("shard-0", 1)))
		return err
	case "JoinRaftCluster":
		_, err = connect.NewClient[v1.JoinRaftClusterRequest, emptypb.Empty](client.HTTP, url, client.Options...).CallUnary(ctx,
			connect.NewRequest(&v1.JoinRaftClusterRequest{NodeId: "node-7", RaftAddress: "127.0.0.1:1"}))
		return err
	}
	any := connect.NewClient[emptypb.Empty, emptypb.Empty](client.HTTP, url, client.Options...)
	if !method.IsStreamingServer() {
		_, err = any.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
		return err
	}
	stream, err := any.CallServerStream(ctx, connect.NewRequest(&emptypb.Empty{}))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	stream.Receive()
	return stream.Err()
}

// probe asks the plain HTTP port of a replica, without any certificate.
func probe(t *testing.T, addr string) {
	t.Helper()
	answer, err := http.Get("http://" + addr + "/healthz")
	if err != nil {
		t.Errorf("COORD-14.6: %v", err)
		return
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("COORD-14.6: a probe is answered %s", answer.Status)
	}
}

// COORD-21.54, 14.2, 14.6: leaves are replaced, half a pair at a time, and the CA with an overlap, while shards report. No
// report fails, and probes never need a certificate.
func TestCertificatesChangeUnderLoad(t *testing.T) {
	p := newPKI(t)
	r := newReplicas(t, 3)
	served := make([]identity.Files, 3)
	for i := range served {
		served[i] = p.replica(i)
	}
	r.tls = func(i int) identity.Files { return served[i] }
	probes := make([]string, 3)
	r.tune = func(i int, c *coordinator.Config) {
		c.Ops = append(c.Ops, opsPort(t, c.Telemetry))
		probes[i] = c.Ops[0].Listener.Addr().String()
	}
	r.startAll()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	shard := p.files(person(identity.Shard, "shard-0"))
	source, err := identity.Load(shard, identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := r.client(source)
	r.group(r.client(p.source(person(identity.Admin, ""))), 3)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := int64(1); ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if _, err := ask(t, c, core.ReportShard, report("shard-0", n)); err != nil {
				t.Errorf("report %d: %v", n, err)
				return
			}
		}
	}()
	next, err := devca.New("next")
	if err != nil {
		t.Fatal(err)
	}
	every := append([]identity.Files{shard}, served...)
	requests := []devca.Request{person(identity.Shard, "shard-0")}
	for i := range served {
		requests = append(requests, devca.For(identity.ID{Kind: identity.Coordinator, Name: id(i)}, id(i)))
	}
	write := func(path string, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	both := append(p.ca.PEM(), next.PEM()...)
	for _, f := range every {
		write(f.CA, both)
	}
	time.Sleep(time.Second)
	for i, f := range every {
		cert, key, err := next.Issue(requests[i])
		if err != nil {
			t.Fatal(err)
		}
		write(f.Cert, cert) // a pair that does not match keeps the last good one
		time.Sleep(300 * time.Millisecond)
		probe(t, probes[i%3])
		write(f.Key, key)
	}
	time.Sleep(time.Second)
	for _, f := range every {
		write(f.CA, next.PEM())
	}
	leads := r.leadsTLS(c)
	r.stop(leads) // the next leader and every new connection live on the new certificates
	time.Sleep(2 * time.Second)
	r.start(leads)
	time.Sleep(time.Second)
	close(stop)
	<-done
}

// leadsTLS finds the leader from the answers to reports, which name it.
func (r *replicas) leadsTLS(c interface{ Leader() string }) int {
	r.t.Helper()
	for i := range r.n {
		if strings.HasPrefix(c.Leader(), id(i)+":") {
			return i
		}
	}
	r.t.Fatalf("%q leads", c.Leader())
	return -1
}

// COORD-21.55, 14.4, 14.5: a replica without TLS cannot reach the Raft port, and the certificate of an admin adds no
// replica unless that was allowed.
func TestStrangersDoNotJoin(t *testing.T) {
	p := newPKI(t)
	r := newReplicas(t, 1)
	r.tls = p.replica
	r.startAll()
	adminSource := p.source(person(identity.Admin, ""))
	c := r.client(adminSource)
	r.group(c, 1)
	join := &v1.JoinRaftClusterRequest{NodeId: "node-7", RaftAddress: "127.0.0.1:1", FeatureLevel: 1}
	refused(t, c, connect.CodePermissionDenied, core.JoinRaftCluster, join)
	r.stop(0)
	r.tune = func(_ int, c *coordinator.Config) { c.JoinAcceptAdmin = true }
	r.start(0)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	client, err := kitrpc.NewClient(kitrpc.ClientConfig{Addr: rpc(0), Limits: kitrpc.ReadClientLimits(), Identity: adminSource, Dial: r.net.Dialer("client")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	eventually(t, "it is let through to the dial of its Raft port, which is closed", func() bool {
		_, err := kitrpc.Stub(client, bigfleetv1alpha1connect.NewCoordinatorClient).JoinRaftCluster(ctx, connect.NewRequest(join))
		return connect.CodeOf(err) == connect.CodeUnavailable && strings.Contains(err.Error(), "cannot be reached")
	})
}
