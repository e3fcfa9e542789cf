package doctor_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// shard is one that answers what a test makes it answer.
type shard struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
	status   *bigfleetv1alpha1.GetStatusResponse
	clusters []*bigfleetv1alpha1.ClusterView
}

func (s *shard) GetStatus(context.Context, *connect.Request[bigfleetv1alpha1.GetStatusRequest]) (*connect.Response[bigfleetv1alpha1.GetStatusResponse], error) {
	return connect.NewResponse(s.status), nil
}

func healthy() *shard {
	return &shard{status: &bigfleetv1alpha1.GetStatusResponse{ShardId: "shard-0", Ready: true, Cycle: 7}}
}

// serve runs a handler over real HTTP/2, with TLS when there is a certificate.
func serve(t *testing.T, h http.Handler, c *tls.Config) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.EnableHTTP2 = true
	if c != nil {
		s.Config.Protocols.SetHTTP2(true)
		s.TLS = c
		s.StartTLS()
	} else {
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Config.Protocols.SetHTTP1(true)
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func (s *shard) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewShardReadHandler(s))
	return mux
}

// doctor runs the command with its clock ahead of the true one.
func doctor(t *testing.T, ahead time.Duration, args ...string) (out string, code exit.Code) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	e := env.Env{In: strings.NewReader(""), Out: &stdout, Err: &stderr, Getenv: func(string) string { return "" }, Now: func() time.Time { return time.Now().Add(ahead) }}
	code = cli.Main(t.Context(), e, append([]string{"doctor"}, args...))
	return stdout.String(), code
}

// finds checks that a fault is found, named, has a remedy, and makes the exit code 4 (OPS-4.21, scenario 12).
func finds(t *testing.T, out string, code exit.Code, message, fix string) {
	t.Helper()
	findsAs(t, "fail", out, message, fix)
	if code != exit.Problems {
		t.Errorf("exit code %d, want %d", code, exit.Problems)
	}
}

// findsAs checks that there is a finding of a level with a remedy.
func findsAs(t *testing.T, level, out, message, fix string) {
	t.Helper()
	lines := strings.Split(out, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, level+" ") && strings.Contains(l, message) {
			if i+1 == len(lines) || !strings.Contains(lines[i+1], fix) {
				t.Errorf("%q has no remedy with %q:\n%s", l, fix, out)
			}
			return
		}
	}
	t.Errorf("no %s says %q:\n%s", level, message, out)
}

func TestHealthy(t *testing.T) {
	out, code := doctor(t, 0, "--shard", serve(t, healthy().handler(), nil))
	if code != exit.OK || strings.Contains(out, "fail ") || !strings.Contains(out, "ok    shard") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

// healed checks that nothing fails once what the finding says was done.
func healed(t *testing.T, out string, code exit.Code) {
	t.Helper()
	if code != exit.OK || strings.Contains(out, "fail ") {
		t.Errorf("the remedy was applied, and still exit %d:\n%s", code, out)
	}
}

func TestPortClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	out, code := doctor(t, 0, "--shard", l.Addr().String())
	finds(t, out, code, "nothing answers at "+l.Addr().String(), "Start the process, or open the port in the firewall")
	if again, err := net.Listen("tcp", l.Addr().String()); err == nil { // else another process has taken the port meanwhile
		s := &http.Server{Handler: healthy().handler(), Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
		s.Protocols.SetUnencryptedHTTP2(true)
		s.Protocols.SetHTTP1(true)
		t.Cleanup(func() { _ = s.Close() })
		go func() { _ = s.Serve(again) }()
		out, code = doctor(t, 0, "--shard", l.Addr().String())
		healed(t, out, code)
	}
	out, code = doctor(t, 0, "--shard", "no-such-host.invalid:7780")
	finds(t, out, code, `the name "no-such-host.invalid" does not resolve`, "Fix the name or the DNS record")
}

func TestClockSkew(t *testing.T) {
	addr := serve(t, healthy().handler(), nil)
	out, code := doctor(t, time.Minute, "--shard", addr)
	finds(t, out, code, "its clock differs by", "Run a time synchronization service")
	out, code = doctor(t, 0, "--shard", addr)
	healed(t, out, code)
}

func TestShardFenced(t *testing.T) {
	s := healthy()
	s.status.Superseded, s.status.Ready = true, false
	addr := serve(t, s.handler(), nil)
	out, code := doctor(t, 0, "--shard", addr)
	finds(t, out, code, "it is fenced: a provider has seen a newer epoch", "Stop this process: a newer process with the same id is running. If it is the one that should run, restart it")
	s.status = healthy().status // as after a restart, with a newer epoch
	out, code = doctor(t, 0, "--shard", addr)
	healed(t, out, code)
}

// certificates writes a CA's files for the client, and makes the server's certificate from a request that a test spoils.
func certificates(t *testing.T, spoil func(*devca.Request)) (server *tls.Config, flags []string) {
	t.Helper()
	ca, err := devca.New("doctor test")
	if err != nil {
		t.Fatal(err)
	}
	id := identity.ID{Kind: identity.Shard, Name: "shard-0"}
	r := devca.For(id, "127.0.0.1", "localhost")
	spoil(&r)
	dir := t.TempDir()
	files, err := ca.Write(dir, "shard", r)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := ca.Write(dir, "admin", devca.For(identity.ID{Kind: identity.Admin}, "localhost"))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert},
		[]string{"--tls-cert", mine.Cert, "--tls-key", mine.Key, "--tls-ca", mine.CA}
}

func TestTLS(t *testing.T) {
	for name, c := range map[string]struct {
		spoil        func(*devca.Request)
		ahead        time.Duration
		message, fix string
	}{
		"names":    {func(r *devca.Request) { r.Hosts = []string{"elsewhere.example"} }, 0, `the certificate does not name "127.0.0.1": it names [elsewhere.example]`, "Issue a certificate that names the host clients dial"},
		"identity": {func(r *devca.Request) { r.URIs = []string{"bigfleet://cluster/red"} }, 0, "which is not a shard identity", "exactly one URI SAN bigfleet://shard/<id>"},
		"expired":  {func(r *devca.Request) { r.Lifetime = -time.Hour }, 0, "the certificate expired at ", "Renew it"},
		"future":   {func(*devca.Request) {}, -240 * time.Hour, "the certificate is valid only from ", "Check the clocks"},
	} {
		t.Run(name, func(t *testing.T) {
			server, flags := certificates(t, c.spoil)
			out, code := doctor(t, c.ahead, append(flags, "--shard", serve(t, healthy().handler(), server))...)
			finds(t, out, code, c.message, c.fix)
			server, flags = certificates(t, func(*devca.Request) {}) // issued as the finding says
			out, code = doctor(t, 0, append(flags, "--shard", serve(t, healthy().handler(), server))...)
			healed(t, out, code)
		})
	}
	t.Run("other CA", func(t *testing.T) {
		server, _ := certificates(t, func(*devca.Request) {})
		_, flags := certificates(t, func(*devca.Request) {})
		out, code := doctor(t, 0, append(flags, "--shard", serve(t, healthy().handler(), server))...)
		finds(t, out, code, "the certificate is not signed by the CA in", "Give every process the same CA bundle")
	})
	t.Run("no certificate", func(t *testing.T) {
		server, flags := certificates(t, func(*devca.Request) {})
		addr := serve(t, healthy().handler(), server)
		out, code := doctor(t, 0, "--shard", addr)
		finds(t, out, code, addr+" serves TLS and this command was given no certificate", "Give this command --tls-cert")
		out, code = doctor(t, 0, append(flags, "--shard", addr)...)
		healed(t, out, code)
	})
	t.Run("fine", func(t *testing.T) {
		server, flags := certificates(t, func(*devca.Request) {})
		out, code := doctor(t, 0, append(flags, "--shard", serve(t, healthy().handler(), server))...)
		if code != exit.OK || !strings.Contains(out, "answers over TLS until") {
			t.Errorf("exit %d:\n%s", code, out)
		}
	})
}

// provider breaks its contract in the ways a test says.
type provider struct {
	bigfleetv1alpha1connect.UnimplementedCapacityProviderHandler
	machines []*bigfleetv1alpha1.Machine
	missing  error
}

func (p *provider) List(context.Context, *connect.Request[bigfleetv1alpha1.ListFilter]) (*connect.Response[bigfleetv1alpha1.MachineList], error) {
	return connect.NewResponse(&bigfleetv1alpha1.MachineList{Machines: p.machines}), nil
}

func (p *provider) Get(context.Context, *connect.Request[bigfleetv1alpha1.MachineRef]) (*connect.Response[bigfleetv1alpha1.Machine], error) {
	return nil, p.missing
}

func TestProviderNotConforming(t *testing.T) {
	m := &bigfleetv1alpha1.Machine{Id: "m-1", State: bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE, InstanceType: "a", CapacityType: bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT}
	mux := http.NewServeMux()
	p := &provider{machines: []*bigfleetv1alpha1.Machine{m}, missing: connect.NewError(connect.CodeUnknown, errors.New("hm"))}
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(p))
	addr := serve(t, mux, nil)
	s := healthy()
	s.status.Providers = []*bigfleetv1alpha1.ProviderStatus{{Name: "p", Address: addr, Breaker: "closed"}}
	out, code := doctor(t, 0, "--shard", serve(t, s.handler(), nil))
	finds(t, out, code, "1 of 1 records break the contract, first: m-1", "Run `bigfleet provider conformance "+addr+"`")
	finds(t, out, code, "Get of an unknown machine answers unknown instead of NOT_FOUND", "Run `bigfleet provider conformance "+addr+"`")
	p.machines, p.missing = nil, connect.NewError(connect.CodeNotFound, errors.New("no such machine"))
	out, code = doctor(t, 0, "--shard", serve(t, s.handler(), nil))
	healed(t, out, code)
}

// cluster is the part of an API server that the doctor asks.
type cluster struct {
	definitions map[string][]byte // JSON by name
	denied      map[string]bool   // verb and resource
	status      string            // that the operator has written; empty: none
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	name, isDefinition := strings.CutPrefix(r.URL.Path, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/")
	switch {
	case r.URL.Path == "/version":
		_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
	case isDefinition && c.definitions[name] != nil:
		_, _ = w.Write(c.definitions[name])
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		raw, err := io.ReadAll(r.Body)
		if err == nil { // clients send protobuf
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(raw, nil, &review)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = !c.denied[a.Verb+" "+a.Resource]
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/leases"), strings.HasSuffix(r.URL.Path, "/nodes"):
		_, _ = w.Write([]byte(`{"items":[]}`))
	case r.URL.Path == "/api/v1/configmaps" && r.URL.Query().Get("fieldSelector") == "metadata.name=bigfleet-operator-status":
		var list corev1.ConfigMapList
		if c.status != "" {
			list.Items = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "bigfleet-system", Name: "bigfleet-operator-status"}, Data: map[string]string{"status.json": c.status}}}
		}
		_ = json.NewEncoder(w).Encode(list)
	default:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	}
}

func newCluster(t *testing.T) (*cluster, []string) {
	t.Helper()
	c := &cluster{definitions: map[string][]byte{}, denied: map[string]bool{}}
	for _, f := range crds.All() {
		raw, err := yaml.YAMLToJSON(f.YAML)
		if err != nil {
			t.Fatal(err)
		}
		var named struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal(raw, &named); err != nil {
			t.Fatal(err)
		}
		c.definitions[named.Metadata.Name] = raw
	}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["red"], cfg.Contexts["red"], cfg.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "red"}, "red"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		t.Fatal(err)
	}
	return c, []string{"--cluster-only", "--kubeconfig", file}
}

func TestDefinitionsAndRights(t *testing.T) {
	c, flags := newCluster(t)
	right := maps.Clone(c.definitions)
	out, code := doctor(t, 0, flags...)
	if code != exit.OK || !strings.Contains(out, "the operator has all the permissions that it needs") {
		t.Errorf("exit %d:\n%s", code, out)
	}

	// A definition of another version: a field is missing, another has another bound.
	for name, raw := range c.definitions {
		if strings.HasPrefix(name, "capacityrequests") {
			old := bytes.Replace(raw, []byte(`"interruptionPenalty"`), []byte(`"interruptionFee"`), 1)
			if bytes.Equal(old, raw) {
				t.Fatal("the definition has changed: spoil another field")
			}
			c.definitions[name] = old
		}
		if strings.HasPrefix(name, "upcomingnodes") {
			delete(c.definitions, name)
		}
	}
	c.denied["create pods"], c.denied["patch nodes"] = true, true
	out, code = doctor(t, 0, flags...)
	finds(t, out, code, "CRD capacityrequests.bigfleet.lucy.sh: its version differs from this command", "`bigfleet crds apply` installs the CRDs of this version")
	finds(t, out, code, "CRD upcomingnodes.bigfleet.lucy.sh: it is not installed", "`bigfleet crds apply`")
	finds(t, out, code, "it may not [create pods/eviction patch nodes]", "Install the ClusterRole of chart bigfleet-operator")
	c.definitions, c.denied = right, map[string]bool{} // as after `crds apply` and with the chart's role
	out, code = doctor(t, 0, flags...)
	healed(t, out, code)
	if err := os.Remove(flags[2]); err != nil {
		t.Fatal(err)
	}
	out, code = doctor(t, 0, flags...)
	finds(t, out, code, "no cluster can be reached", "Name a kubeconfig with --kubeconfig")
}

// OP-5.26, OPS-4.21: the doctor says of which instance types the Nodes are not as they were offered, and warns where most is missing.
func TestInstanceTypes(t *testing.T) {
	c, flags := newCluster(t)
	for _, x := range []struct{ status, level, want, fix string }{
		{"", "warn", "no operator has written ConfigMap bigfleet-operator-status", "Install chart bigfleet-operator"},
		{`{"clusterID":"red"}`, "ok", "the Nodes that have joined are as their provider offered them", ""},
		{`{"nodeShapes":[{"instanceType":"m5.large","resource":"memory","offered":"8Gi","found":"7Gi","nodes":3},{"instanceType":"m5.large","resource":"pods","found":"29","nodes":3}]}`,
			"ok", "instance type m5.large: its Nodes (3 Ready) have memory 7Gi (offered: 8Gi), pods 29 (offered: nothing). Machines of this type count as what their Nodes have", ""},
		{`{"nodeShapes":[{"instanceType":"p4d","resource":"nvidia.com/gpu","offered":"8","found":"3","nodes":1}]}`,
			"warn", "instance type p4d: its Nodes (1 Ready) have nvidia.com/gpu 3 (offered: 8)", "Check what the kubelet reserves and the device plugins of these Nodes"},
		{`{`, "warn", "status.json of ConfigMap bigfleet-system/bigfleet-operator-status cannot be read", "Delete the ConfigMap"},
	} {
		c.status = x.status
		out, code := doctor(t, 0, flags...)
		if code != exit.OK {
			t.Errorf("%s: exit %d", x.status, code)
		}
		findsAs(t, x.level, out, x.want, x.fix)
	}
}
