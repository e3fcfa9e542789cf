package charts

import (
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

func consoleRelease(values string) Release {
	return Release{Chart: "bigfleet", Name: "bigfleet", Namespace: "bigfleet-system", Values: noBoards + oneProvider + values}
}

// objects are those of a kind that belong to the console.
func ofConsole[T any](t testing.TB, render []byte, kind string) (out []T) {
	t.Helper()
	for doc := range strings.SplitSeq(string(render), "\n---\n") {
		if !strings.Contains(doc, "\nkind: "+kind+"\n") || !strings.Contains(doc, "\n    app.kubernetes.io/component: console\n") {
			continue
		}
		var object T
		if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
			t.Fatal(err)
		}
		out = append(out, object)
	}
	return out
}

func argOf(t testing.TB, args []string, flag string) string {
	t.Helper()
	for _, a := range args {
		if value, ok := strings.CutPrefix(a, flag+"="); ok {
			return value
		}
	}
	return ""
}

// OPS-6.1, 7.3: as it comes, only users who may forward ports reach the console, reads with a certificate of its own, has no token, and
// keeps the restricted level. What opens it says who may come in.
func TestConsoleIsClosedUntilItIsOpened(t *testing.T) {
	out := render(t, consoleRelease(""))
	d := deployment(t, out)
	spec, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
	if got := argOf(t, c.Args, "--listen"); got != "127.0.0.1:7700" {
		t.Errorf("it listens on %s", got)
	}
	if *spec.AutomountServiceAccountToken || !*spec.SecurityContext.RunAsNonRoot || *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem || c.SecurityContext.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%+v, %+v", spec.SecurityContext, c.SecurityContext)
	}
	if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("probes %+v, %+v", c.LivenessProbe, c.ReadinessProbe)
	}
	if got := ofConsole[corev1.Service](t, out, "Service"); len(got) != 0 {
		t.Errorf("a Service leads to a port that is closed: %+v", got)
	}
	for _, p := range ofConsole[networkingv1.NetworkPolicy](t, out, "NetworkPolicy") {
		for _, in := range p.Spec.Ingress {
			if in.Ports[0].Port.StrVal != "metrics" {
				t.Errorf("the policy lets in to %v", in.Ports)
			}
		}
	}
	if !strings.Contains(string(out), "--secret=bigfleet-console-tls=readonly\n") {
		t.Error("the authority makes no read certificate for it")
	}

	out = render(t, consoleRelease("console: {behindProxy: true, ingress: {enabled: true, hosts: [fleet.example.com]}}\nnetworkPolicy: {proxySelectors: [{podSelector: {matchLabels: {app: proxy}}}]}\n"))
	args := deployment(t, out).Spec.Template.Spec.Containers[0].Args
	if argOf(t, args, "--listen") != ":7700" || argOf(t, args, "--hosts") != "fleet.example.com" || !slices.Contains(args, "--behind-proxy") {
		t.Errorf("behind a proxy: %v", args)
	}
	var from []networkingv1.NetworkPolicyPeer
	for _, in := range ofConsole[networkingv1.NetworkPolicy](t, out, "NetworkPolicy")[0].Spec.Ingress {
		if in.Ports[0].Port.StrVal == "http" {
			from = in.From
		}
	}
	if len(from) != 1 || from[0].PodSelector.MatchLabels["app"] != "proxy" {
		t.Errorf("more than the proxy may come in: %+v", from)
	}
	backend := rendered[networkingv1.Ingress](t, out, "Ingress").Spec.Rules[0].HTTP.Paths[0].Backend.Service
	if services := ofConsole[corev1.Service](t, out, "Service"); len(services) != 1 || services[0].Name != backend.Name || services[0].Spec.Ports[0].Name != backend.Port.Name {
		t.Errorf("the Ingress leads to %+v, the Services are %+v", backend, services)
	}

	out = render(t, consoleRelease("console: {browserTLS: {secretName: web}}\n"))
	if args := deployment(t, out).Spec.Template.Spec.Containers[0].Args; argOf(t, args, "--listen-cert") != "/etc/bigfleet/browser-tls/tls.crt" || argOf(t, args, "--listen") != ":7700" {
		t.Errorf("with a certificate for browsers: %v", args)
	}
	out = render(t, consoleRelease("console: {behindProxy: true, hosts: [a.example.com], writes: {enabled: true, userHeader: X-User, users: [alice, bob]}}\nnetworkPolicy: {proxySelectors: [{podSelector: {}}]}\n"))
	spec = deployment(t, out).Spec.Template.Spec
	args = spec.Containers[0].Args
	if !slices.Contains(args, "--allow-writes") || argOf(t, args, "--writers") != "alice,bob" || argOf(t, args, "--auth-header") != "X-User" || argOf(t, args, "--admin-cert") != "/etc/bigfleet/admin-tls/tls.crt" {
		t.Errorf("with writes: %v", args)
	}
	if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "admin-tls" && v.Secret.SecretName == "bigfleet-admin" }) {
		t.Errorf("with writes and the chart's authority: %+v", spec.Volumes)
	}
	if out := render(t, consoleRelease("console: {enabled: false}\n")); strings.Contains(string(out), "component: console\n") || strings.Contains(string(out), "console-tls") {
		t.Error("console.enabled: false renders a console")
	}
}

// OPS-8.1, 8.4: the console's certificate comes from where those of coordinators and shards come, and names nothing but a reader.
func TestConsoleIdentity(t *testing.T) {
	ordered := func(values string) Release {
		const issuer = "{issuerRef: {name: fleet, kind: ClusterIssuer}}"
		r := consoleRelease("coordinator: {tls: " + issuer + "}\n" + values)
		r.Values = strings.Replace(r.Values, oneProvider, "shard: {provider: {addr: \""+cloud+"\"}, tls: "+issuer+"}\n", 1)
		return r
	}
	out := string(render(t, ordered("")))
	at := strings.Index(out, "  name: bigfleet-console-tls\n")
	if at < 0 || strings.Contains(out, "kind: CronJob\n") {
		t.Fatal("with an issuer of the others there is no Certificate for it, or an authority beside it")
	}
	if c := out[at:]; !strings.Contains(c[:strings.Index(c, "\n---\n")], "uris: [\"bigfleet://readonly\"]") {
		t.Errorf("the Certificate:\n%.900s", c)
	}
	withDriver := render(t, ordered("console: {tls: {csi: true}}\n"))
	for _, v := range deployment(t, withDriver).Spec.Template.Spec.Volumes {
		if v.Name == "tls" && (v.CSI == nil || v.CSI.VolumeAttributes["csi.cert-manager.io/uri-sans"] != "bigfleet://readonly" || v.CSI.VolumeAttributes["csi.cert-manager.io/issuer-name"] != "fleet") {
			t.Errorf("with the driver: %+v", v)
		}
	}
	plain := deployment(t, render(t, consoleRelease("requireTLS: false\n")))
	if args := strings.Join(plain.Spec.Template.Spec.Containers[0].Args, " "); strings.Contains(args, "tls") {
		t.Errorf("without TLS: %s", args)
	}
}

// OPS-7.1: the program takes the arguments of every render.
func TestConsoleArgumentsAreFlags(t *testing.T) {
	binary := proc.BuildT(t, "services/bigfleet")
	for name, r := range management() {
		out := render(t, r)
		if !strings.Contains(string(out), "\nkind: Deployment\n") {
			continue
		}
		d := deployment(t, out)
		var args []string
		for _, a := range d.Spec.Template.Spec.Containers[0].Args {
			args = append(args, strings.NewReplacer("$(POD_NAMESPACE)", d.Namespace).Replace(a))
		}
		if out, err := exec.CommandContext(t.Context(), binary, append(args, "--print-config")...).CombinedOutput(); err != nil {
			t.Errorf("%s %v: %v\n%s", name, args, err, out)
		}
	}
}

// console runs the rendered console beside the others: it is ready when a source has answered, shows the page, and changes nothing (OPS-6.2).
func (m *machine) console(render []byte) {
	m.t.Helper()
	d := deployment(m.t, render)
	host := "bigfleet-console.bigfleet-system.svc"
	if err := m.run(d.Spec.Template.Spec, d.Namespace, d.Name, host); err != nil {
		m.t.Fatal(err)
	}
	at := "http://" + m.at(host+":7700")
	for path, want := range map[string]int{"/": http.StatusOK, "/bigfleet.v1alpha1.Console/GetSources": http.StatusOK, "/bigfleet.v1alpha1.CoordinatorAdmin/DrainShard": http.StatusForbidden} {
		method, body := http.MethodGet, io.Reader(nil)
		if path != "/" {
			method, body = http.MethodPost, strings.NewReader("{}")
		}
		req, err := http.NewRequestWithContext(m.t.Context(), method, at+path, body)
		if err != nil {
			m.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		got, err := http.DefaultClient.Do(req)
		if err != nil {
			m.t.Fatal(err)
		}
		text, _ := io.ReadAll(got.Body)
		_ = got.Body.Close()
		if got.StatusCode != want || strings.HasSuffix(path, "GetSources") && !strings.Contains(string(text), "shard/bigfleet-shard-0") {
			m.t.Errorf("%s: %s\n%.2000s", path, got.Status, text)
		}
	}
}
