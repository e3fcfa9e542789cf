package operator

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

// bootData asks for the boot data of a machine and returns the answer.
func bootData(t testing.TB, s *shard, id string, in *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
	t.Helper()
	in.RequestId, in.ClusterId = id, clusterID
	s.send(t, &pb.ShardMessage{Payload: &pb.ShardMessage_BootstrapRequest{BootstrapRequest: in}})
	return bootAnswer(t, s, id)
}

func bootAnswer(t testing.TB, s *shard, id string) (out *pb.BootstrapBlobResponse) {
	t.Helper()
	s.until(t, "boot data "+id, func(frames []frame) bool {
		for _, f := range frames {
			if b := f.m.GetBootstrapResponse(); b != nil && b.RequestId == id {
				out = b
				return true
			}
		}
		return false
	})
	return out
}

// cloudInit is what a machine reads of the built-in boot data.
type cloudInit struct {
	Files []struct {
		Path, Content, Encoding string
	} `json:"write_files"`
	Run [][]string `json:"runcmd"`
}

func (c cloudInit) file(t testing.TB, path string) []byte {
	t.Helper()
	for _, f := range c.Files {
		if f.Path != path {
			continue
		}
		if f.Encoding != "b64" {
			return []byte(f.Content)
		}
		b, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Fatalf("the boot data writes no %s", path)
	return nil
}

var kubeletFlag = regexp.MustCompile(`--([a-z-]+)=(\S+)`)

// kubelet is a machine that joins as a real one does: with the boot data, and with nothing else.
type kubelet struct {
	name      string
	bootstrap *rest.Config // of the token
	flags     map[string]string
}

func newKubelet(t testing.TB, name string, blob []byte) *kubelet {
	t.Helper()
	if !bytes.HasPrefix(blob, []byte("#cloud-config\n")) {
		t.Fatalf("no cloud-config: %.60s", blob)
	}
	var c cloudInit
	if err := yaml.UnmarshalStrict(blob, &c); err != nil && !strings.Contains(err.Error(), "unknown field") {
		t.Fatal(err)
	}
	k := &kubelet{name: name, flags: map[string]string{}}
	unit := string(c.file(t, "/etc/systemd/system/kubelet.service.d/90-bigfleet.conf"))
	for _, m := range kubeletFlag.FindAllStringSubmatch(unit, -1) {
		k.flags[m[1]] = m[2]
	}
	var err error
	if k.bootstrap, err = clientcmd.RESTConfigFromKubeConfig(c.file(t, k.flags["bootstrap-kubeconfig"])); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Kind           string
		Authentication struct {
			X509 struct{ ClientCAFile string }
		}
		RotateCertificates bool
	}
	if err := yaml.Unmarshal(c.file(t, k.flags["config"]), &config); err != nil {
		t.Fatal(err)
	}
	if config.Kind != "KubeletConfiguration" || !config.RotateCertificates ||
		!bytes.Equal(c.file(t, config.Authentication.X509.ClientCAFile), k.bootstrap.CAData) {
		t.Errorf("the kubelet's configuration %+v", config)
	}
	if !slices.ContainsFunc(c.Run, func(cmd []string) bool { return slices.Contains(cmd, "kubelet") }) {
		t.Error("nothing starts the kubelet")
	}
	return k
}

// join does the TLS bootstrap of a kubelet and registers the Node.
func (k *kubelet) join(t testing.TB) *corev1.Node {
	t.Helper()
	ctx := t.Context()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + k.name, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	holder, err := kubernetes.NewForConfig(k.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := holder.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); len(csr.Status.Certificate) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("the certificate of %s was not issued: %+v", k.name, csr.Status.Conditions)
		}
		if csr, err = holder.CertificatesV1().CertificateSigningRequests().Get(ctx, csr.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	own := rest.AnonymousClientConfig(k.bootstrap)
	own.CertData, own.KeyData = csr.Status.Certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	node, err := kubernetes.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: map[string]string{corev1.LabelHostname: k.name}},
		Spec:       corev1.NodeSpec{ProviderID: k.flags["provider-id"]},
	}
	for pair := range strings.SplitSeq(k.flags["node-labels"], ",") {
		name, value, _ := strings.Cut(pair, "=")
		n.Labels[name] = value
	}
	if taint, effect, ok := strings.Cut(k.flags["register-with-taints"], ":"); ok {
		name, value, _ := strings.Cut(taint, "=")
		n.Spec.Taints = []corev1.Taint{{Key: name, Value: value, Effect: corev1.TaintEffect(effect)}}
	}
	n.Status.Allocatable = resources("cpu", "4", "memory", "16Gi", "pods", "110")
	n.Status.Capacity = n.Status.Allocatable
	n, err = node.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("the kubelet cannot register with what its boot data says: %v", err)
	}
	return n
}

// tokens are the bootstrap tokens that exist.
func (w *world) tokens() map[string]corev1.Secret {
	w.Helper()
	list, err := w.kube.CoreV1().Secrets(metav1.NamespaceSystem).List(w.Context(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	w.must(err)
	out := map[string]corev1.Secret{}
	for _, s := range list.Items {
		out[string(s.Data["token-id"])] = s
	}
	return out
}

func tokenID(c *rest.Config) string {
	id, _, _ := strings.Cut(c.BearerToken, ".")
	return id
}

func builtIn(w *world, pool int) func(*operator.Config) {
	return func(c *operator.Config) {
		c.BootstrapRenderer, c.APIServerURL, c.BootstrapTokenPool = operator.RendererBuiltIn, w.cp.Endpoint(), pool
	}
}

// What the built-in renderer writes is enough to join, and gives nothing more.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := startShard(t, allFeatures...)
	const pool = 3
	op := w.operator(s, builtIn(w, pool))

	// Scenario 26, OP-7.7, OP-7.8, OP-7.13, OP-7.14: a node started from the built-in blob joins with the machine-id label.
	t.Run("a machine joins", func(t *testing.T) {
		w := w.with(t)
		w.until("the pool is full", func() bool { return len(w.tokens()) == pool })
		out := bootData(t, s, "00000000000000b1", &pb.BootstrapRequest{
			Requirements: []*pb.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"z1"}}},
			Machine: &pb.BootstrapMachine{
				MachineId: "b1", Provider: "test", ProviderId: "test://b1",
				Labels: map[string]string{"node.kubernetes.io/instance-type": "test.large", "topology.kubernetes.io/zone": "z1", "topology.bigfleet/rack": "r1",
					"node-role.kubernetes.io/worker": ""}, // a kubelet may not set the last
				Taints: []*pb.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}},
			},
		})
		if out.Error != "" || out.TtlSeconds < 300 {
			t.Fatalf("answer %v", out)
		}
		k := newKubelet(t, "joined", out.UserData)
		id := tokenID(k.bootstrap)
		secret, there := w.tokens()[id]
		if !there || string(secret.Data["auth-extra-groups"]) != "system:bootstrappers:bigfleet" || secret.Data["usage-bootstrap-signing"] != nil {
			t.Fatalf("token %s: %v", id, secret.Data)
		}
		if ends, err := time.Parse(time.RFC3339, string(secret.Data["expiration"])); err != nil || time.Until(ends) < time.Duration(out.TtlSeconds)*time.Second {
			t.Errorf("the token ends at %v (%v), before the blob", ends, err)
		}
		// The token allows nothing but to ask for a certificate.
		holder, err := kubernetes.NewForConfig(k.bootstrap)
		w.must(err)
		if _, err := holder.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the holder of a token lists nodes: %v", err)
		}
		s.send(t, node("b1", pb.MachineState_MACHINE_STATE_CONFIGURING))
		n := k.join(t)
		if n.Labels[v1alpha1.LabelMachineID] != "b1" || n.Labels["topology.bigfleet/rack"] != "r1" || n.Spec.ProviderID != "test://b1" || n.Spec.Taints[0].Key != "gpu" {
			t.Errorf("node %v %v", n.Labels, n.Spec)
		}
		s.send(t, node("b1", pb.MachineState_MACHINE_STATE_CONFIGURED))
		s.until(t, "the shard hears that the node is Ready", func(frames []frame) bool {
			return slices.ContainsFunc(frames, func(f frame) bool {
				r := f.m.GetNodeReport()
				return r != nil && r.MachineId == "b1" && r.Ready && r.NodeName == "joined"
			})
		})
		// OP-7.10, scenario 25: the token goes with the join, and the pool is full again.
		w.until("the token is gone", func() bool {
			all := w.tokens()
			_, there := all[id]
			return !there && len(all) == pool
		})
		if m, _ := get(w, namespace, "bigfleet-operator-status", &corev1.ConfigMap{}); strings.Contains(m.Data["status.json"], k.bootstrap.BearerToken) {
			t.Error("the status holds the secret of a token")
		}
	})

	// Scenario 25, OP-7.9: more machines at once than the pool has tokens; no token goes out twice.
	t.Run("a crowd of machines", func(t *testing.T) {
		w := w.with(t)
		const machines = 40
		for i := range machines {
			s.send(t, &pb.ShardMessage{Payload: &pb.ShardMessage_BootstrapRequest{BootstrapRequest: &pb.BootstrapRequest{
				RequestId: fmt.Sprintf("%016x", 0xc00+i), ClusterId: clusterID, Machine: &pb.BootstrapMachine{MachineId: fmt.Sprintf("crowd-%d", i)},
			}}})
		}
		seen := map[string]bool{}
		for i := range machines {
			out := bootAnswer(t, s, fmt.Sprintf("%016x", 0xc00+i))
			if out.Error != "" {
				t.Fatalf("answer %v", out)
			}
			id := tokenID(newKubelet(t, "n", out.UserData).bootstrap)
			if seen[id] {
				t.Fatalf("token %s went out twice", id)
			}
			seen[id] = true
		}
		if n := len(w.tokens()); n < machines {
			t.Errorf("%d tokens exist for %d machines", n, machines)
		}
	})

	// Scenario 25, OP-7.16: the API server mints nothing, and the pool runs dry: an error that says "again".
	t.Run("no token to be had", func(t *testing.T) {
		w := w.with(t)
		w.calls.interfere(nil, func(r *http.Request) error {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/secrets") {
				select { // as slow as the caller lets it be
				case <-r.Context().Done():
				case <-time.After(30 * time.Second):
				}
				return errors.New("no answer")
			}
			return nil
		})
		defer w.calls.interfere(nil, nil)
		var out *pb.BootstrapBlobResponse
		for i := range pool + 1 {
			out = bootData(t, s, fmt.Sprintf("%016x", 0xd00+i), &pb.BootstrapRequest{Machine: &pb.BootstrapMachine{MachineId: fmt.Sprintf("dry-%d", i)}})
			if out.Error != "" {
				break
			}
		}
		if out.ErrorClass != pb.BootstrapBlobResponse_ERROR_CLASS_TOKEN || !out.Retryable || len(out.UserData) != 0 {
			t.Errorf("answer %v", out)
		}
	})

	// Scenario 24, OP-7.11: a kubelet that the API server cannot serve.
	t.Run("version skew", func(t *testing.T) {
		w := w.with(t)
		server, err := w.kube.Discovery().ServerVersion()
		w.must(err)
		for i, kubelet := range []string{"v1.99.0", "v1.32.9"} {
			out := bootData(t, s, fmt.Sprintf("%016x", 0xe00+i), &pb.BootstrapRequest{Requirements: []*pb.NodeSelectorRequirement{
				{Key: v1alpha1.RequirementKubeletVersion, Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{kubelet}},
			}})
			if out.ErrorClass != pb.BootstrapBlobResponse_ERROR_CLASS_SKEW || !strings.Contains(out.Error, kubelet) || !strings.Contains(out.Error, server.GitVersion) {
				t.Errorf("%s: answer %v", kubelet, out)
			}
		}
	})

	// Scenario 5, OP-4.11 to OP-4.13: while no write of an UpcomingNode gets through, boot data does, and so does a cordon.
	t.Run("slow writes delay no other answer", func(t *testing.T) {
		w := w.with(t)
		w.machine(s, "calm")
		gate := make(chan struct{})
		w.calls.interfere(func(r *http.Request) {
			if strings.Contains(r.URL.Path, "/upcomingnodes") && r.Method != http.MethodGet {
				<-gate
			}
		}, nil)
		defer w.calls.interfere(nil, nil)
		for i := range 500 {
			s.send(t, node(fmt.Sprintf("slow-%03d", i), pb.MachineState_MACHINE_STATE_CREATING))
		}
		w.until("writes are stuck", func() bool { return w.metric(t, "dispatch_inflight", "") > 0 })
		start := time.Now()
		out := bootData(t, s, "00000000000000f1", &pb.BootstrapRequest{Machine: &pb.BootstrapMachine{MachineId: "quick"}})
		t.Logf("answered beside 500 stuck writes after %v", time.Since(start))
		after := s.count()
		s.send(t, reclaim("0000000000000151", 30, "calm"))
		if ack := s.ack(t, "0000000000000151", after); ack.NodesStarted != 1 || !w.cordoned("calm") {
			t.Errorf("a reclaim beside stuck writes: answer %v", ack)
		}
		close(gate)
		if out.Error != "" {
			t.Errorf("answer %v", out)
		}
		w.until("the writes go on", func() bool { return w.phase("slow-499") == v1alpha1.NodeProvisioning })
	})

	// OP-7.10: what a stopped operator left in the pool is deleted; what it handed out is its successor's to delete.
	t.Run("tokens of a predecessor", func(t *testing.T) {
		w := w.with(t)
		out := bootData(t, s, "00000000000000f2", &pb.BootstrapRequest{Machine: &pb.BootstrapMachine{MachineId: "heir"}})
		id := tokenID(newKubelet(t, "n", out.UserData).bootstrap)
		w.must(op.end())
		if _, there := w.tokens()[id]; !there {
			t.Fatal("a token that a machine may still use is gone")
		}
		before := s.count()
		w.operator(s, builtIn(w, pool))
		s.until(t, "the successor's session", func(f []frame) bool { return lastRollup(f[before:]) != nil })
		s.send(t, node("heir", pb.MachineState_MACHINE_STATE_CONFIGURED))
		w.node("node-heir", "heir")
		w.until("the successor deletes it", func() bool { _, there := w.tokens()[id]; return !there })
	})
}

// Scenario 23, OP-3.2, OP-7.1, OP-7.2, OP-7.3: a template that fails withholds one machine and ends no process; one that cannot be parsed
// is reported at the start.
func testBootstrapTemplate(t *testing.T, w *world) {
	file := filepath.Join(t.TempDir(), "bootstrap.tmpl")
	write := func(text string) {
		w.must(os.WriteFile(file, []byte(text), 0o600))
	}
	template := func(c *operator.Config) { c.BootstrapRenderer, c.BootstrapTemplateFile = operator.RendererAuto, file }
	s := startShard(t, allFeatures...)

	write("{{ .MachineID ")
	op := w.operator(s, template)
	if err := <-op.done; err == nil || !strings.Contains(err.Error(), "bootstrap template") {
		t.Errorf("an unparsable template: it ended with %v", err)
	}
	op.ended = true

	// OP-7.12: without a URL that machines can reach, the built-in renderer does not start; cluster-info gives one.
	op = w.operator(s, func(c *operator.Config) { c.BootstrapRenderer = operator.RendererBuiltIn })
	if err := <-op.done; err == nil || !strings.Contains(err.Error(), "--apiserver-url") {
		t.Errorf("without a URL of the API server it ended with %v", err)
	}
	op.ended = true

	write(`#!/bin/sh
# {{ required "this image needs a provider id" .ProviderID }} {{ .ClusterID }}
join --labels {{ .NodeLabels | quote }} {{ range .Requirements }}{{ .Key }}={{ join "," .Values }}{{ end }}
`)
	w.operator(s, template)
	out := bootData(t, s, "0000000000000001", &pb.BootstrapRequest{Machine: &pb.BootstrapMachine{MachineId: "m1"}})
	if out.ErrorClass != pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE || out.Retryable || !strings.Contains(out.Error, "this image needs a provider id") {
		t.Errorf("answer %v", out)
	}
	// OP-7.15: the synthetic requirement names the machine and is not a constraint; Same with one value is In.
	out = bootData(t, s, "0000000000000002", &pb.BootstrapRequest{
		Machine: &pb.BootstrapMachine{ProviderId: "test://m2"},
		Requirements: []*pb.NodeSelectorRequirement{
			{Key: v1alpha1.LabelMachineID, Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"m2"}},
			{Key: "rack", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME, Values: []string{"r7"}},
			{Key: "zone", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME},
		},
	})
	want := "#!/bin/sh\n# test://m2 red\njoin --labels \"bigfleet.lucy.sh/machine-id=m2\" rack=r7\n"
	if string(out.UserData) != want || out.Error != "" {
		t.Errorf("answer %v\ngot  %q\nwant %q", out, out.UserData, want)
	}
	if n := len(w.tokens()); n != 0 { // OP-7.7
		t.Errorf("%d tokens were minted for a template that asks for none", n)
	}
}
