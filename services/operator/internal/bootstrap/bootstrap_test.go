package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secrets are those of kube-system: made and deleted by name, as the operator's rights allow, and nothing else.
type secrets struct {
	client.Client
	mu   sync.Mutex
	live map[string]*corev1.Secret
	down error
}

func (s *secrets) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return s.down
	}
	if s.live[o.GetName()] != nil {
		return apierrors.NewAlreadyExists(corev1.Resource("secrets"), o.GetName())
	}
	s.live[o.GetName()] = o.(*corev1.Secret)
	return nil
}

func (s *secrets) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[o.GetName()] == nil {
		return apierrors.NewNotFound(corev1.Resource("secrets"), o.GetName())
	}
	delete(s.live, o.GetName())
	return nil
}

func (s *secrets) get(id string) *corev1.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[secretName(id)]
}

func (s *secrets) names() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]bool{}
	for name := range s.live {
		out[name] = true
	}
	return out
}

func newInstruments(t testing.TB) *instruments.Instruments {
	t.Helper()
	none := func() float64 { return 0 }
	i, err := instruments.New(prometheus.NewRegistry(), instruments.Reads{CacheAge: none, AcceptedAge: none, EvictionsStopped: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func newTokens(t testing.TB, s *secrets, pool int) *Tokens {
	t.Helper()
	out, err := NewTokens(TokensConfig{Client: s, Pool: pool, Wanted: true, TTL: ttlDefault, Instruments: newInstruments(t), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Scenario 25, OP-7.9, OP-7.10: a token that is about to end is never handed out; the pool renews it in time; what was
// handed out goes when it has ended or its machine has joined.
func TestTokensAboutToExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &secrets{live: map[string]*corev1.Secret{}}
		tokens := newTokens(t, s, 2)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = tokens.Run(ctx) }()
		synctest.Wait()
		first := s.names()
		if len(first) != 2 {
			t.Fatalf("the pool is %v", first)
		}
		for range 12 { // three hours, a machine now and then
			time.Sleep(15 * time.Minute)
			synctest.Wait()
			token, err := tokens.Take(t.Context(), "m", ttlDefault)
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(token.Expires); left < ttlDefault+ttlMargin {
				t.Fatalf("a token with %v left was handed out for a blob of %v", left, ttlDefault)
			}
			secret := s.get(token.ID)
			if secret == nil || secret.StringData["token-secret"] != token.secret {
				t.Fatal("the token that was handed out does not exist")
			}
			synctest.Wait()
		}
		for name := range s.names() {
			if first[name] {
				t.Errorf("token %s is three hours old", name)
			}
		}
		joined, err := tokens.Take(t.Context(), "joins", ttlDefault)
		if err != nil {
			t.Fatal(err)
		}
		tokens.Joined("joins")
		synctest.Wait()
		if s.names()[secretName(joined.ID)] {
			t.Error("the token of a machine that joined exists")
		}
		late, err := tokens.Take(t.Context(), "late", ttlDefault)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(late.Expires) + tokensEvery)
		synctest.Wait()
		if s.names()[secretName(late.ID)] {
			t.Error("a token that has ended exists")
		}
		stop()
		<-done
		for _, left := range tokens.Live() {
			if left.Machine == "" {
				t.Errorf("token %s of the pool outlived the operator", left.ID)
			}
		}
	})
}

// Scenario 25: with an empty pool and an API server that refuses, the answer is an error that says "again".
func TestNoToken(t *testing.T) {
	s := &secrets{live: map[string]*corev1.Secret{}, down: errors.New("etcd is full")}
	_, err := newTokens(t, s, 2).Take(t.Context(), "m", ttlDefault)
	p, ok := errors.AsType[*Problem](err)
	if !ok || p.Class != pb.BootstrapBlobResponse_ERROR_CLASS_TOKEN || !p.Retryable || !strings.Contains(p.Say, "etcd is full") {
		t.Errorf("error %v", err)
	}
}

// Scenario 24, OP-7.11.
func TestSkew(t *testing.T) {
	for _, c := range []struct {
		kubelet, server string
		ok              bool
	}{
		{"v1.36.3", "v1.36.3", true}, {"v1.36.9", "v1.36.3", true}, {"1.33", "v1.36.3", true}, {"v1.36.0-rc.1+vendor.2", "v1.36.3-eks-1", true},
		{"v1.32.9", "v1.36.3", false}, {"v1.37.0", "v1.36.3", false}, {"v2.36.0", "v1.36.3", false}, {"new", "v1.36.3", false}, {"v1.36.0", "", false},
	} {
		err := checkSkew(c.kubelet, c.server)
		if (err == nil) != c.ok {
			t.Errorf("kubelet %s with API server %s: %v", c.kubelet, c.server, err)
		}
		if p, ok := errors.AsType[*Problem](err); err != nil && (!ok || p.Class != pb.BootstrapBlobResponse_ERROR_CLASS_SKEW) {
			t.Errorf("%s: %v is no skew", c.kubelet, err)
		}
	}
}

// OP-7.11: an API server that was upgraded is noticed by the first kubelet of its version, not minutes later.
func TestUpgradedServerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := "v1.36.3"
		r, err := newRenderer(t, "{{ .KubeletVersion }} at {{ .ClusterVersion }}", Config{
			KubeletVersion: "v1.37.0", Versions: &Versions{Read: func(context.Context) (string, error) { return server, nil }}})
		if err != nil {
			t.Fatal(err)
		}
		if out := answer(t, r, &pb.BootstrapRequest{}); out.ErrorClass != pb.BootstrapBlobResponse_ERROR_CLASS_SKEW || !strings.Contains(out.Error, "v1.37.0") || !strings.Contains(out.Error, "v1.36.3") {
			t.Errorf("before the upgrade: %v", out)
		}
		server = "v1.37.1"
		time.Sleep(versionRetry)
		if out := answer(t, r, &pb.BootstrapRequest{}); string(out.UserData) != "v1.37.0 at v1.37.1" {
			t.Errorf("after the upgrade: %v", out)
		}
	})
}

// OP-7.11, OP-4.12: while the API server hangs, no machine waits behind another's attempt to read the version.
func TestHangingVersionHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := false
		v := &Versions{Read: func(ctx context.Context) (string, error) {
			if hangs {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "v1.36.3", nil
		}}
		ask := func(want string, limit time.Duration) {
			t.Helper()
			start := time.Now()
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if got, err := v.Get(t.Context()); got != want || (err == nil) != (want != "") {
						t.Errorf("got %q, %v", got, err)
					}
				})
			}
			all.Wait()
			if took := time.Since(start); took > limit {
				t.Errorf("a hundred machines were answered after %v", took)
			}
		}
		hangs = true
		ask("", mintTimeout) // it was never read: an error, to all at once
		hangs = false
		time.Sleep(versionRetryFirst)
		ask("v1.36.3", 0)
		hangs = true
		time.Sleep(versionEvery)
		ask("v1.36.3", mintTimeout)
		ask("v1.36.3", 0) // nor is it tried for each machine
	})
}

// A name that ends the line it stands in would add lines of its own to what a machine runs at its boot.
func TestNamesStayInTheirLine(t *testing.T) {
	r, err := newRenderer(t, "# {{ .MachineID }} {{ .NodeTaints }}", Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*pb.BootstrapMachine{
		{MachineId: "m\nruncmd: [reboot]"}, {Provider: "a b"}, {ProviderId: "aws:///x\r\n--v=9"},
		{Taints: []*pb.Taint{{Key: "k", Value: "v\nExecStart=/bin/sh", Effect: "NoSchedule"}}}, {Taints: []*pb.Taint{{Key: "k", Effect: "Never"}}},
	} {
		out := answer(t, r, &pb.BootstrapRequest{Machine: m})
		if out.ErrorClass != pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE || out.Retryable || len(out.UserData) != 0 {
			t.Errorf("%v is rendered: %v", m, out)
		}
	}
}

// OP-7.11: the version is read once in five minutes; an outage leaves the old one in force.
func TestVersionIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, answer := 0, error(nil)
		v := &Versions{Read: func(context.Context) (string, error) { reads++; return "v1.36.3", answer }}
		for range 10 {
			if got, err := v.Get(t.Context()); got != "v1.36.3" || err != nil {
				t.Fatal(got, err)
			}
		}
		if reads != 1 {
			t.Errorf("%d reads", reads)
		}
		time.Sleep(versionEvery)
		answer = errors.New("down")
		if got, err := v.Get(t.Context()); got != "v1.36.3" || err != nil || reads != 2 {
			t.Errorf("%s %v after %d reads", got, err, reads)
		}
	})
}

func newRenderer(t testing.TB, text string, c Config) (*Renderer, error) {
	t.Helper()
	if text != "" {
		c.Renderer, c.TemplateFile = Template, filepath.Join(t.TempDir(), "bootstrap.tmpl")
		if err := os.WriteFile(c.TemplateFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.ClusterID, c.Instruments, c.Log = "red", newInstruments(t), slog.New(slog.DiscardHandler)
	return New(c)
}

func answer(t testing.TB, r *Renderer, in *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
	t.Helper()
	if !r.Enter() {
		t.Fatal("no place")
	}
	return r.Answer(t.Context(), in)
}

// OP-7.6: nothing that reads files, environment, network or time; and what is there works.
func TestFunctions(t *testing.T) {
	for _, name := range []string{"env", "expandenv", "readFile", "include", "tpl", "now", "getHostByName", "lookup"} {
		if _, err := newRenderer(t, "{{ "+name+" }}", Config{}); err == nil {
			t.Errorf("templates have %s", name)
		}
	}
	for text, want := range map[string]string{
		`{{ "a" | b64enc }}`: "YQ==", `{{ "a\nb" | indent 2 }}`: "  a\n  b", `x{{ "a" | nindent 2 }}`: "x\n  a", `{{ quote "a" }}`: `"a"`,
		`{{ default "d" .Provider }}`: "d", `{{ required "no" .ClusterID }}`: "red", `{{ .TTLSeconds }}`: "600", `{{ .NodeTaints }}!`: "a=b:NoSchedule!",
	} {
		r, err := newRenderer(t, text, Config{})
		if err != nil {
			t.Fatal(err)
		}
		out := answer(t, r, &pb.BootstrapRequest{Machine: &pb.BootstrapMachine{Taints: []*pb.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}}}})
		if string(out.UserData) != want || out.Error != "" || out.TtlSeconds != 600 {
			t.Errorf("%s: %v, want %q", text, out, want)
		}
	}
}

// OP-7.5, OP-7.15: what a template sees of a request, and that what the shard did not send is empty.
func TestContext(t *testing.T) {
	const text = "{{ .ClusterID }}|{{ .MachineID }}|{{ .Provider }}|{{ .ProviderID }}|{{ .Labels.zone }}|{{ range .Taints }}{{ .Key }}={{ .Value }}:{{ .Effect }}{{ end }}|" +
		"{{ range .Requirements }}{{ .Key }} {{ .Operator }} {{ join \",\" .Values }};{{ end }}|{{ .APIServer }}|{{ .CABundle }}|{{ .ClusterVersion }}|{{ .KubeletVersion }}|{{ .TTLSeconds }}"
	r, err := newRenderer(t, text, Config{APIServer: "https://a:6443", CABundle: []byte("PEM"), Versions: &Versions{Read: func(context.Context) (string, error) { return "v1.36.3", nil }}})
	if err != nil {
		t.Fatal(err)
	}
	in := &pb.BootstrapRequest{
		Machine: &pb.BootstrapMachine{Provider: "p", ProviderId: "p://m", Labels: map[string]string{"zone": "a"}, Taints: []*pb.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}},
		Requirements: []*pb.NodeSelectorRequirement{
			{Key: "arch", Operator: pb.NodeSelectorRequirement_OPERATOR_NOT_IN, Values: []string{"x", "y"}},
			{Key: "bigfleet.lucy.sh/machine-id", Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"m"}},
			{Key: "rack", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME, Values: []string{"r"}},
			{Key: "row", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME},
		},
	}
	for _, c := range []struct {
		in   *pb.BootstrapRequest
		want string
	}{
		{in, "red|m|p|p://m|a|k=v:NoSchedule|arch NotIn x,y;rack In r;|https://a:6443|PEM|v1.36.3|v1.36.3|600"},
		{&pb.BootstrapRequest{Machine: &pb.BootstrapMachine{Labels: map[string]string{"zone": ""}}}, "red|||||||https://a:6443|PEM|v1.36.3|v1.36.3|600"},
	} {
		if out := answer(t, r, c.in); string(out.UserData) != c.want {
			t.Errorf("got  %s %v\nwant %s", out.UserData, out.Error, c.want)
		}
	}
}

// Scenario 23, OP-7.1: whatever a template does, the answer is an answer.
func TestFailingTemplates(t *testing.T) {
	for text, want := range map[string]string{
		`{{ range .Requirements }}{{ .Nothing }}{{ end }}`: "Nothing", `{{ index .Labels "a" "b" }}`: "index", `{{ required "say the zone" "" }}`: "say the zone", `{{/* empty */}}`: "0 bytes",
		`{{ range $i, $x := .Requirements }}{{ indent 1000 "x" }}{{ end }}`: "indent by 1000", `{{ .Token }}`: "no bootstrap tokens", `{{ .KubeconfigYAML }}`: "--apiserver-url",
	} {
		r, err := newRenderer(t, text, Config{})
		if err != nil {
			t.Fatal(err)
		}
		out := answer(t, r, &pb.BootstrapRequest{RequestId: "x", Requirements: []*pb.NodeSelectorRequirement{{Key: "k", Operator: pb.NodeSelectorRequirement_OPERATOR_EXISTS}}})
		if !strings.Contains(out.Error, want) || out.RequestId != "x" || len(out.UserData) != 0 || out.ErrorClass != pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE {
			t.Errorf("%s: %v, want an error with %q", text, out, want)
		}
	}
	for _, c := range []Config{{Renderer: Template}, {Renderer: BuiltIn}, {Renderer: "magic"}, {Renderer: Template, TemplateFile: "/does/not/exist"}} {
		if _, err := newRenderer(t, "", c); err == nil {
			t.Errorf("%+v starts", c)
		}
	}
}

// OP-4.12: beyond the bound the answer is an error that says "again", and places come back.
func TestOverload(t *testing.T) {
	r, err := newRenderer(t, "x", Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range inflightMax {
		if !r.Enter() {
			t.Fatal("too few places")
		}
	}
	if r.Enter() {
		t.Error("no bound")
	}
	if out := r.Overloaded("id"); out.ErrorClass != pb.BootstrapBlobResponse_ERROR_CLASS_OVERLOADED || !out.Retryable || out.RequestId != "id" {
		t.Errorf("answer %v", out)
	}
	r.Answer(t.Context(), &pb.BootstrapRequest{})
	if !r.Enter() {
		t.Error("a place did not come back")
	}
}

// OP-7.15: type and zone of the machine become labels of the Node; a label that the machine has itself wins.
func TestTypeAndZoneBecomeLabels(t *testing.T) {
	r := &Renderer{}
	d := r.data(t.Context(), &pb.BootstrapRequest{Machine: &pb.BootstrapMachine{InstanceType: "metal.64x", Zone: "z1", Labels: map[string]string{"topology.kubernetes.io/zone": "own"}}})
	if d.Labels["node.kubernetes.io/instance-type"] != "metal.64x" || d.Labels["topology.kubernetes.io/zone"] != "own" {
		t.Errorf("labels %v", d.Labels)
	}
	if d := r.data(t.Context(), &pb.BootstrapRequest{Machine: &pb.BootstrapMachine{Zone: "z1"}}); d.Labels["topology.kubernetes.io/zone"] != "z1" || len(d.Labels) != 1 {
		t.Errorf("labels %v", d.Labels)
	}
}

// A kubelet may set only some of the reserved labels; the others would make its registration fail.
func TestNodeLabels(t *testing.T) {
	d := &Data{Labels: map[string]string{"b": "1", "a.example.com/x": "2", "node.kubernetes.io/instance-type": "t", "topology.kubernetes.io/zone": "z",
		"node-role.kubernetes.io/worker": "", "x.k8s.io/y": "3", "bigfleet.lucy.sh/machine-id": "m", "bad": "two words", "evil": "x\nExecStart=/bin/sh"}}
	if got, want := d.NodeLabels(), "a.example.com/x=2,b=1,bigfleet.lucy.sh/machine-id=m,node.kubernetes.io/instance-type=t,topology.kubernetes.io/zone=z"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
