package console

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// secured is a provider and a shard under TLS, and what makes certificates for more.
type secured struct {
	t     *testing.T
	ca    *devca.CA
	dir   string
	shard string // address
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	ca, err := devca.New("console")
	if err != nil {
		t.Fatal(err)
	}
	at := addresses(t, 5)
	s := &secured{t: t, ca: ca, dir: t.TempDir(), shard: at[0]}
	offerings := filepath.Join(s.dir, "offerings.yaml")
	const slots = "offerings:\n- {name: m, instance_type: m, zone: a, capacity_type: on_demand, count: 4, price_per_hour: 0.1, resources: {cpu: \"8\", memory: 32Gi}}\n"
	if err := os.WriteFile(offerings, []byte(slots), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("provider", at[3], identity.ID{Kind: identity.Admin}, "provider", "sim", "--addr", at[1], "--offerings", offerings, "--time-scale", "1000", "--data-dir", s.dir+"/provider", "--sim-control-addr", at[2])
	s.run("shard", at[4], identity.ID{Kind: identity.Shard, Name: "s0"}, "shard", "--id", "s0", "--listen", at[0], "--provider-addr", at[1], "--data-dir", s.dir+"/shard")
	return s
}

func (s *secured) run(name, ops string, id identity.ID, args ...string) {
	s.t.Helper()
	f := s.files(id)
	args = append(args, "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA, "--metrics-addr", ops, "--log-level", "warn")
	proc.StartT(s.t, proc.Config{Name: name, Path: proc.BuildT(s.t, program), Args: args, Ready: proc.HTTP("http://"+ops+"/readyz", nil)})
}

func (s *secured) files(id identity.ID) identity.Files {
	s.t.Helper()
	f, err := s.ca.Write(s.dir, strings.NewReplacer("/", "-", ":", "").Replace(id.String()), devca.For(id))
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// dial is a client of the shard under an identity.
func (s *secured) dial(id identity.ID) *rpc.Client {
	s.t.Helper()
	source, err := identity.Load(s.files(id), identity.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: s.shard, Limits: rpc.ReadClientLimits(), Identity: source})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.CloseIdle)
	return client
}

// stubborn is a cluster's operator that renders no boot data, and states demand on request.
type stubborn struct {
	cluster string
	stream  *connect.BidiStreamForClient[v1.OperatorMessage, v1.ShardMessage]
	asked   atomic.Int64 // for boot data
}

func newStubborn(s *secured, cluster string) *stubborn {
	s.t.Helper()
	client := s.dial(identity.ID{Kind: identity.Cluster, Name: cluster})
	ctx, cancel := context.WithCancel(context.Background())
	o := &stubborn{cluster: cluster, stream: rpc.Stub(client, api.NewShardClient).Session(ctx)}
	ended := make(chan struct{})
	s.t.Cleanup(func() {
		cancel()
		_ = o.stream.CloseRequest() // the transport looks at ctx only once it is done with what is sent
		<-ended
	})
	if err := o.stream.Send(&v1.OperatorMessage{Payload: &v1.OperatorMessage_Hello{Hello: &v1.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1"}}}); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		for {
			m, err := o.stream.Receive()
			if err != nil {
				return
			}
			if r := m.GetBootstrapRequest(); r != nil {
				o.asked.Add(1)
				_ = o.stream.Send(&v1.OperatorMessage{Payload: &v1.OperatorMessage_BootstrapResponse{BootstrapResponse: &v1.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "the template has no kubelet version"}}})
			}
		}
	}()
	return o
}

func (o *stubborn) state(t *testing.T, needs ...*v1.CapacityNeed) {
	t.Helper()
	if err := o.stream.Send(&v1.OperatorMessage{Payload: &v1.OperatorMessage_Rollup{Rollup: &v1.ClusterCapacityNeeds{ClusterId: o.cluster, TimestampUnixNanos: time.Now().UnixNano(), Needs: needs}}}); err != nil {
		t.Fatal(err)
	}
}

// OPS-6.2, OPS-8.1: with mTLS everywhere, the console reads under bigfleet://readonly and gives orders under bigfleet://admin: in the browser a person
// ends the waits of a cluster, accepts its held report and retries a machine, and each is recorded in the person's name. The identity that
// reads may give no order.
func TestOrdersOverTLS(t *testing.T) {
	web(t)
	s := newSecured(t)
	at := addresses(t, 2)
	admin := s.files(identity.ID{Kind: identity.Admin})
	s.run("console", at[1], identity.ID{Kind: identity.ReadOnly}, "console", "--listen", at[0], "--coordinator", "", "--shard", "s0="+s.shard,
		"--allow-writes", "--behind-proxy", "--hosts", "127.0.0.1", "--auth-header", "X-User", "--writers", "alice@example.com", "--admin-cert", admin.Cert, "--admin-key", admin.Key)
	read := rpc.Stub(s.dial(identity.ID{Kind: identity.ReadOnly}), api.NewShardReadClient) // of the shard itself

	reader := rpc.Stub(s.dial(identity.ID{Kind: identity.ReadOnly}), api.NewShardAdminClient)
	if _, err := reader.PauseActuation(t.Context(), connect.NewRequest(&v1.PauseActuationRequest{Reason: "forged"})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("an order under the identity that reads: %v", err)
	}

	// One row that a machine is bought for, and eleven that none fits. Then nothing: the guard holds that.
	operator := newStubborn(s, "red")
	needs := []*v1.CapacityNeed{{RowId: "one", Priority: 100, AggregateResources: map[string]string{"cpu": "4"}, MinUnit: map[string]string{"cpu": "4"}}}
	for i := range int32(11) {
		needs = append(needs, &v1.CapacityNeed{RowId: "huge-" + string('a'+i), Priority: i, AggregateResources: map[string]string{"cpu": "9000"}, MinUnit: map[string]string{"cpu": "9000"}})
	}
	operator.state(t, needs...)
	cluster := func() *v1.ClusterView {
		got, err := read.ListClusters(t.Context(), connect.NewRequest(&v1.ListClustersRequest{ClusterId: "red"}))
		if err != nil || len(got.Msg.GetClusters()) != 1 {
			return nil
		}
		return got.Msg.GetClusters()[0]
	}
	eventually(t, "the cluster waits after its operator's error", func() (bool, bool) { return true, len(cluster().GetBackoffs()) > 0 && cluster().GetNeeds() == 12 })
	operator.state(t)
	eventually(t, "the empty report is held", func() (bool, bool) { return true, cluster().GetHeldCount() > 0 })
	machine := eventually(t, "a machine is there", func() (string, bool) {
		got, err := read.ListMachines(t.Context(), connect.NewRequest(&v1.ListMachinesRequest{States: []v1.MachineState{v1.MachineState_MACHINE_STATE_IDLE, v1.MachineState_MACHINE_STATE_CONFIGURING}}))
		if err != nil || len(got.Msg.GetMachines()) == 0 {
			return "", false
		}
		return got.Msg.GetMachines()[0].GetMachine().GetId(), true
	})
	before := operator.asked.Load()
	browse(t, "orders-tls.mjs", []string{"MACHINE=" + machine}, named(t, at[0], "alice@example.com"))
	if n := operator.asked.Load(); n <= before {
		t.Errorf("the operator was asked %d times, and %d times before its waits were ended", n, before)
	}
	if c := cluster(); c.GetHeldCount() != 0 || c.GetNeeds() != 0 {
		t.Errorf("the held report is not accepted: %v", c)
	}
	orders(t, read, "alice@example.com", "retry_machine: it is stuck", "clear_backoff: the template is repaired", "accept_rollup: the cluster is being emptied")
}

// orders compares the records of orders with those that a person gave, in their order; each want is a part of one.
func orders(t *testing.T, read api.ShardReadClient, person string, want ...string) {
	t.Helper()
	got, err := read.GetMachineHistory(t.Context(), connect.NewRequest(&v1.GetMachineHistoryRequest{PageSize: 5000}))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for i := len(got.Msg.GetRecords()) - 1; i >= 0; i-- {
		if r := got.Msg.GetRecords()[i]; r.GetType() == v1.RecordType_RECORD_TYPE_ADMIN {
			said = append(said, r.GetActor()+": "+r.GetDetail())
		}
	}
	all := strings.Join(said, "\n")
	if len(said) != len(want) {
		t.Fatalf("%d orders are recorded, want %d:\n%s", len(said), len(want), all)
	}
	for i, w := range want {
		if !strings.HasPrefix(said[i], "bigfleet://admin for "+person+": ") || !strings.Contains(said[i], w) {
			t.Errorf("order %d is recorded as %q, want %q of %s", i, said[i], w, person)
		}
	}
}
