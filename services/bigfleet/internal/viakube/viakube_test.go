package viakube_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"      //nolint:staticcheck // deprecated, and still what client-go speaks
	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // deprecated, and still what client-go speaks

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// apiServer forwards ports of Pods as a real one does, to servers of the test, and lists the Pods.
type apiServer struct {
	t    *testing.T
	pods map[string]string // "namespace/name:port" to an address
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	switch {
	case len(parts) == 2 && parts[1] == "pods" && r.URL.Query().Get("labelSelector") == "app.kubernetes.io/part-of=bigfleet,app.kubernetes.io/component=coordinator":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if parts[0] == "fleet" {
			list.Items = []corev1.Pod{
				{ObjectMeta: metav1.ObjectMeta{Name: "coordinator-0"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
				{ObjectMeta: metav1.ObjectMeta{Name: "coordinator-1"}, Status: corev1.PodStatus{Phase: corev1.PodPending}},
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	case len(parts) == 4 && parts[3] == "portforward":
		s.forward(w, r, parts[0]+"/"+parts[2])
	default:
		http.NotFound(w, r)
	}
}

func (s *apiServer) forward(w http.ResponseWriter, r *http.Request, pod string) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(x httpstream.Stream, _ <-chan struct{}) error {
		streams <- x
		return nil
	})
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	var data, failures httpstream.Stream
	for range 2 {
		select {
		case x := <-streams:
			if x.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
				data = x
			} else {
				failures = x
			}
		case <-conn.CloseChan():
			return
		}
	}
	to, err := net.Dial("tcp", s.pods[pod+":"+data.Headers().Get(corev1.PortHeader)])
	if err != nil {
		_, _ = io.WriteString(failures, "connection refused")
		_ = failures.Close()
		_ = data.Reset()
		<-conn.CloseChan()
		return
	}
	_ = failures.Close()
	defer func() { _ = to.Close() }()
	go func() {
		_, _ = io.Copy(to, data)
		_ = to.Close()
	}()
	_, _ = io.Copy(data, to)
	_ = data.Close()
	<-conn.CloseChan()
}

type shard struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
	id string
}

func (s shard) ListMachines(context.Context, *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	return connect.NewResponse(&pb.ListMachinesResponse{Machines: []*pb.MachineView{{Machine: &pb.Machine{Id: "machine-of-" + s.id}}}}), nil
}

type coordinator struct {
	bigfleetv1alpha1connect.UnimplementedCoordinatorHandler
}

func (coordinator) ListShards(context.Context, *connect.Request[pb.ListShardsRequest]) (*connect.Response[pb.ListShardsResponse], error) {
	return connect.NewResponse(&pb.ListShardsResponse{Shards: []*pb.ShardRegistryEntry{
		{ShardId: "shard-0", Address: "shard-0.bigfleet-shard-headless.fleet.svc:7780"}, {ShardId: "shard-1", Address: "shard-1.bigfleet-shard-headless.fleet.svc:7780"}}}), nil
}

// serve runs a handler on loopback and returns its address.
func serve(t *testing.T, path string, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(path, h)
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.Protocols.SetHTTP1(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// OPS-4.7: with --via-kube a kubeconfig of the management cluster is all that is needed: the coordinator's Pods are found by
// their labels, shards by the addresses that they have inside the cluster, and every call goes through the API server.
func TestThroughTheAPIServer(t *testing.T) {
	api := &apiServer{t: t, pods: map[string]string{}}
	for _, id := range []string{"shard-0", "shard-1"} {
		path, h := bigfleetv1alpha1connect.NewShardReadHandler(shard{id: id})
		api.pods["fleet/"+id+":7780"] = serve(t, path, h)
	}
	path, h := bigfleetv1alpha1connect.NewCoordinatorHandler(coordinator{})
	api.pods["fleet/coordinator-0:7790"] = serve(t, path, h)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: m, clusters: [{name: m, cluster: {server: "`+server.URL+`"}}], `+
		`users: [{name: m, user: {}}], contexts: [{name: m, context: {cluster: m, user: m}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	bigfleet := func(args ...string) (exit.Code, string, string) {
		var out, errs strings.Builder
		code := cli.Main(t.Context(), env.Env{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now},
			append(args, "--kubeconfig", kubeconfig, "--timeout", "1m"))
		return code, out.String(), errs.String()
	}
	if code, out, errs := bigfleet("get", "machines", "-o", "name", "--via-kube=m/fleet"); code != exit.OK || out != "machine/machine-of-shard-0\nmachine/machine-of-shard-1\n" {
		t.Errorf("all shards: exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := bigfleet("get", "machines", "-o", "name", "--via-kube=m/fleet", "--shard", "shard-1:7780"); code != exit.OK || out != "machine/machine-of-shard-1\n" {
		t.Errorf("one shard: exit %d\n%s%s", code, out, errs)
	}
	if code, _, errs := bigfleet("get", "machines", "--via-kube"); code != exit.Unreachable || !strings.Contains(errs, "no Pod of namespace bigfleet-system runs") || !strings.Contains(errs, "--via-kube=CONTEXT/NAMESPACE") {
		t.Errorf("no coordinator there: exit %d\n%s", code, errs)
	}
	if code, _, errs := bigfleet("get", "machines", "--via-kube=nowhere"); code != exit.Usage || !strings.Contains(errs, "nowhere") {
		t.Errorf("no such context: exit %d\n%s", code, errs)
	}
	if code, _, errs := bigfleet("get", "machines", "--via-kube=m/fleet", "--shard", "127.0.0.1:7780"); code != exit.Unreachable {
		t.Errorf("an address that is no Pod: exit %d\n%s", code, errs)
	}
	delete(api.pods, "fleet/shard-0:7780")
	if code, out, errs := bigfleet("get", "machines", "-o", "name", "--via-kube=m/fleet"); code != exit.Unreachable || out != "machine/machine-of-shard-1\n" || !strings.Contains(errs, "no answer from shard-0") {
		t.Errorf("one shard is gone: exit %d\n%s%s", code, out, errs)
	}
}
