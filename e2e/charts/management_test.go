package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

const (
	cloud       = "bigfleet-provider-sim.bigfleet-system.svc:9000"
	oneProvider = "shard: {provider: {addr: \"" + cloud + "\"}}\n"
)

const everythingManaged = `
coordinator:
  replicas: 5
  storage: {size: 20Gi, storageClassName: fast}
  tls: {issuerRef: {name: fleet, kind: ClusterIssuer}}
  export: {enabled: true, keep: 12, volume: {persistentVolumeClaim: {claimName: exports}}}
  requireZones: false
shard:
  replicas: 2
  perShard: {"0": {provider-addr: [eu=eu-cloud:9000]}, "1": {provider-addr: [us=us-cloud:9100], provision-rate: 60}}
  service: {external: {enabled: true, annotations: {example.com/lb: internal}}}
  tls: {secretName: shard-tls, perOrdinal: true}
  actuationPaused: true
  dryRun: true
  auditLog: audit.jsonl
console:
  replicas: 2
  viewers: 500
  behindProxy: true
  ingress: {enabled: true, className: nginx, annotations: {example.com/auth: sso}, hosts: [fleet.example.com], tls: [{hosts: [fleet.example.com], secretName: fleet-web}]}
  writes: {enabled: true, userHeader: X-User, users: [alice@example.com], tls: {secretName: console-admin-tls}}
  tls: {secretName: console-tls}
  clusters: {secretName: clusters, contexts: [red, blue]}
requireTLS: true
networkPolicy: {operatorCIDRs: [10.0.0.0/8], proxySelectors: [{podSelector: {matchLabels: {app: proxy}}}], providerSelectors: [{podSelector: {matchLabels: {app: cloud}}}], prometheusNamespace: monitoring}
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
metrics: {podMonitor: {enabled: true, labels: {team: fleet}}, serviceMonitor: {enabled: true}}
backup: {enabled: true, schedule: "5 * * * *", volume: {persistentVolumeClaim: {claimName: backups}}, tls: {secretName: admin-tls}}
otlpEndpoint: otel.observability:4317
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: control, operator: Exists}]
podAnnotations: {example.com/a: b}
podLabels: {example.com/c: d}
priorityClassName: system-cluster-critical
extraArgs: {coordinator: [--admin-rate=20], shard: [--max-sessions=500], console: [--viewers=600]}
extraEnv: [{name: GOMEMLIMIT, value: 6GiB}]
extraVolumes: [{name: extra, emptyDir: {}}]
extraVolumeMounts: [{name: extra, mountPath: /extra}]
imagePullSecrets: [{name: pull}]
`

// noBoards leaves the dashboards out of a golden render: they are files of their own, which TestManagementDashboards compares.
const noBoards = "dashboards: {enabled: false}\n"

// management are the releases of the management plane.
func management() map[string]Release {
	return map[string]Release{
		"management":            {Chart: "bigfleet", Name: "bigfleet", Namespace: "bigfleet-system", Values: oneProvider + noBoards},
		"management-everything": {Chart: "bigfleet", Name: "eu", Namespace: "fleet", Values: everythingManaged + noBoards + "alerts: {enabled: false}\n", APIs: []string{"monitoring.coreos.com/v1"}},
		"management-one-shard": {Chart: "bigfleet", Name: "bigfleet", Namespace: "bigfleet-system",
			Values: noBoards + "coordinator: {enabled: false}\nnetworkPolicy: {enabled: false}\nshard: {providers: [{name: a, address: \"a:1\"}, {name: b, address: \"b:2\"}]}\n"},
	}
}

func statefulSets(t testing.TB, render []byte) map[string]*appsv1.StatefulSet {
	t.Helper()
	out := map[string]*appsv1.StatefulSet{}
	for doc := range strings.SplitSeq(string(render), "\n---\n") {
		if strings.Contains(doc, "\nkind: StatefulSet\n") {
			var s appsv1.StatefulSet
			if err := yaml.UnmarshalStrict([]byte(doc), &s); err != nil {
				t.Fatal(err)
			}
			out[s.Labels["app.kubernetes.io/component"]] = &s
		}
	}
	return out
}

// OPS-7.1, 7.2: what cannot work is refused, with words that say what to set.
func TestBadManagementValues(t *testing.T) {
	for values, want := range map[string]string{
		"": "shard.provider.addr is required",
		"coordinator: {replicas: 2}\n" + oneProvider:                                          "replicas",
		oneProvider + "logLevel: loud":                                                        "logLevel",
		"shard: {provider: {addr: sim}}":                                                      "addr",
		"shard: {replicas: 2, perShard: {\"0\": {provider-addr: [\"a:1\"]}}}":                 "no entry for shard 1",
		"shard: {perShard: {\"0\": {}}}":                                                      "provider-addr",
		"shard: {reclaimCapFraction: 2, provider: {addr: \"a:1\"}}":                           "reclaimCapFraction",
		"coordinator: {enabled: false}\nshard: {replicas: 2, provider: {addr: \"a:1\"}}":      "several shards without a coordinator",
		"serviceAccount: {create: false}\n" + oneProvider:                                     "serviceAccount.name is required",
		"coordinator: {raft: {heartbeat: soon}}\n" + oneProvider:                              "heartbeat",
		"shard: {provider: {addr: \"a:1\"}, coordinatorAddr: http://x}":                       "coordinatorAddr",
		"shard: {provider: {addr: \"a:1\"}, service: {external: {enabled: true, type: Any}}}": "type",
		"shard: {provider: {addr: \"a:1\"}, storage: {size: much}}":                           "size",
		"shard: {provider: {addr: \"a:1\"}, tls: {secretName: x, perOrdinal: true, mode: 1}}": "mode",
		"shard: {provider: {addr: \"a:1\"}, auditLog: /var/log/decisions}":                    "auditLog",
		"shard: {provider: {addr: \"a:1\"}}\nnetworkPolicy: {operatorCIDRs: 10.0.0.0/8}":      "operatorCIDRs",
		"shard: {provider: {addr: \"a:1\"}}\nextraArgs: [--dry-run]":                          "extraArgs",
		"backup: {enabled: true}\n" + oneProvider:                                             "backup.volume is required",
		"backup: {enabled: true, schedule: hourly, volume: {emptyDir: {}}}\n" + oneProvider:   "schedule",
		"backup: {enabled: true, volume: {emptyDir: {}}}\ncoordinator: {tls: {secretName: x}, replicas: 1}\nconsole: {enabled: false}\n" + oneProvider: "backup.tls.secretName is required",
		"coordinator: {tls: {secretName: x, perOrdinal: true}}\n" + oneProvider:                                                                        "console.tls.secretName is required",
		"console: {ingress: {enabled: true, hosts: [a.example.com]}}\n" + oneProvider:                                                                  "console.behindProxy",
		"console: {browserTLS: {secretName: x}, ingress: {enabled: true}}\n" + oneProvider:                                                             "console.ingress.hosts is required",
		"console: {behindProxy: true}\n" + oneProvider:                                                                                                 "networkPolicy.proxySelectors is required",
		"console: {hosts: [\"https://a\"]}\n" + oneProvider:                                                                                            "hosts",
		"console: {writes: {enabled: true}}\n" + oneProvider:                                                                                           "console.writes.enabled needs",
		"console: {viewers: 0}\n" + oneProvider:                                                                                                        "viewers",
		"coordinator: {enabled: false}\nshard: {enabled: false}\n":                                                                                     "there is nothing to show",
	} {
		_, err := Render(t.Context(), Release{Chart: "bigfleet", Name: "x", Namespace: "x", Values: values})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that names %s", values, err, want)
		}
	}
}

// COORD-17.3, OPS-7.3: Pods start in parallel behind a Service that publishes addresses of Pods that are not ready, since a
// replica is ready only when there is a leader; no token, the restricted level; a budget that leaves a quorum.
func TestManagementObjects(t *testing.T) {
	out := render(t, management()["management"])
	for role, s := range statefulSets(t, out) {
		p, c := s.Spec.Template.Spec, s.Spec.Template.Spec.Containers[0]
		switch {
		case s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement:
			t.Errorf("%s: Pods start %s", role, s.Spec.PodManagementPolicy)
		case *p.AutomountServiceAccountToken, !*p.SecurityContext.RunAsNonRoot, p.SecurityContext.SeccompProfile.Type != "RuntimeDefault",
			*c.SecurityContext.AllowPrivilegeEscalation, !*c.SecurityContext.ReadOnlyRootFilesystem, c.SecurityContext.Capabilities.Drop[0] != "ALL":
			t.Errorf("%s: %+v, %+v", role, p.SecurityContext, c.SecurityContext)
		case c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Port.StrVal != "metrics":
			t.Errorf("%s: probes %+v, %+v", role, c.LivenessProbe, c.ReadinessProbe)
		}
		service := s.Spec.ServiceName
		for doc := range strings.SplitSeq(string(out), "\n---\n") {
			if strings.Contains(doc, "\nkind: Service\n") && strings.Contains(doc, "name: "+service+"\n") &&
				(!strings.Contains(doc, "publishNotReadyAddresses: true") || !strings.Contains(doc, "clusterIP: None")) {
				t.Errorf("Service %s:\n%s", service, doc)
			}
		}
	}
	if !strings.Contains(string(out), "minAvailable: 2") {
		t.Error("no budget that leaves a quorum of three")
	}
}

// COORD-17.3, OPS-7.1, OPS-8.6: the rendered arguments, with names of this machine in place of the cluster's, make three coordinators a
// group, and a shard that reports to it and dials a provider, all of them with TLS. Those of every value are flags of the programs.
func TestManagementStarts(t *testing.T) {
	binary := proc.BuildT(t, "services/bigfleet")
	for name, r := range management() {
		for _, s := range statefulSets(t, render(t, r)) {
			var args []string
			for _, a := range s.Spec.Template.Spec.Containers[0].Args {
				a = strings.NewReplacer("$(POD_NAME)", s.Name+"-0", "$(POD_NAMESPACE)", s.Namespace).Replace(a)
				if file, ok := strings.CutPrefix(a, "--config=/etc/bigfleet/settings/"); ok {
					settings := rendered[corev1.ConfigMap](t, render(t, r), "ConfigMap").Data[file]
					path := filepath.Join(t.TempDir(), file)
					if err := os.WriteFile(path, []byte(settings), 0o600); err != nil || settings == "" {
						t.Fatal(file, err)
					}
					a = "--config=" + path
				}
				args = append(args, a)
			}
			if out, err := exec.CommandContext(t.Context(), binary, append(args, "--print-config")...).CombinedOutput(); err != nil {
				t.Fatalf("%s %v: %v\n%s", name, args, err, out)
			}
		}
	}
	text := render(t, management()["management"])
	sets := statefulSets(t, text)
	m := &machine{t: t, ports: map[string]*loopback.Port{}, binary: binary}
	m.issue(text)
	starts := make(chan error, 4)
	for i := range 3 {
		go func() { starts <- m.start(sets["coordinator"], i) }()
	}
	for range 3 {
		if err := <-starts; err != nil {
			t.Fatal(err)
		}
	}
	dir, provider := t.TempDir(), statefulSet(t, render(t, Release{Chart: "bigfleet-provider-sim", Name: "bigfleet-provider-sim", Namespace: "bigfleet-system"})).Spec.Template.Spec
	args := []string{"--addr", m.at(cloud), "--data-dir", dir, "--sim-control-addr", "off", "--metrics-addr", m.at("sim-metrics.svc:1")}
	for _, a := range provider.Containers[0].Args {
		if strings.Contains(a, "tls") {
			args = append(args, m.mounted(provider, "").Replace(a))
		}
	}
	p, err := proc.Start(t.Context(), proc.Config{Name: "sim", Path: proc.BuildT(t, "services/providers/sim/cmd/bigfleet-provider-sim"), LogFile: filepath.Join(dir, "log"),
		Args: args, Ready: proc.TCP(m.at(cloud))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	if err := m.start(sets["shard"], 0); err != nil {
		t.Fatal(err)
	}
	where := m.at("bigfleet-coordinator-0.bigfleet-coordinator.bigfleet-system.svc:7790")
	if out, err := exec.CommandContext(t.Context(), binary, "get", "shards", "--coordinator", where).CombinedOutput(); err == nil {
		t.Errorf("a coordinator of the chart's defaults answers without TLS:\n%s", out)
	}
	admin := m.secrets["bigfleet-admin"]
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, err := exec.CommandContext(t.Context(), binary, "get", "shards", "--coordinator", where,
			"--tls-cert", admin+"/tls.crt", "--tls-key", admin+"/tls.key", "--tls-ca", admin+"/ca.crt").CombinedOutput()
		if err == nil && strings.Contains(string(out), "bigfleet-shard-0") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the shard never reported: %v\n%s", err, out)
		}
	}
	m.backup()
	m.console(text)
}

// OPS-7.1, OPS-9.5: where the Prometheus operator's API is, the rules of deploy/monitoring are objects, whole but for those that the
// values leave out, and only those of roles that run.
func TestManagementAlerts(t *testing.T) {
	type rule struct {
		Metadata struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec spec `json:"spec"`
	}
	labelled := "alerts: {labels: {release: prometheus}}\n" + oneProvider
	api := []string{"monitoring.coreos.com/v1"}
	for _, c := range []struct {
		values  string
		apis    []string
		roles   []string
		without string
	}{
		{labelled, api, []string{"coordinator", "shard"}, ""},
		{"coordinator: {enabled: false}\n" + labelled, api, []string{"shard"}, ""},
		{"alerts: {disabled: [CycleSlow, NoLeader], labels: {release: prometheus}}\n" + oneProvider, api, []string{"coordinator", "shard"}, " CycleSlow NoLeader "},
		{"alerts: {enabled: false}\n" + oneProvider, api, nil, ""},
		{labelled, nil, nil, ""}, // a PrometheusRule would be refused with the whole release
	} {
		var got []string
		for doc := range strings.SplitSeq(string(render(t, Release{Chart: "bigfleet", Name: "bigfleet", Namespace: "fleet", Values: c.values, APIs: c.apis})), "\n---\n") {
			if !strings.Contains(doc, "\nkind: PrometheusRule\n") {
				continue
			}
			var r rule
			if err := yaml.Unmarshal([]byte(doc), &r); err != nil {
				t.Fatal(err)
			}
			role := r.Metadata.Labels["app.kubernetes.io/component"]
			var want spec
			if err := yaml.Unmarshal(monitoringFile(t, role+"-alerts.yaml"), &want); err != nil {
				t.Fatal(err)
			}
			for i := range want.Groups {
				want.Groups[i].Rules = slices.DeleteFunc(want.Groups[i].Rules, func(r map[string]any) bool {
					return strings.Contains(c.without, fmt.Sprintf(" %v ", r["alert"]))
				})
			}
			if r.Metadata.Name != "bigfleet-"+role || r.Metadata.Labels["release"] != "prometheus" || !reflect.DeepEqual(r.Spec, want) {
				t.Errorf("%s: %+v", role, r.Metadata)
			}
			got = append(got, role)
		}
		if !slices.Equal(got, c.roles) {
			t.Errorf("%q: rules of %v", c.values, got)
		}
	}
}

type spec struct {
	Groups []struct {
		Name  string           `json:"name"`
		Rules []map[string]any `json:"rules"`
	} `json:"groups"`
}

func monitoringFile(t *testing.T, name string) []byte {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// OPS-9.4, OPS-7.1: the dashboards of deploy/monitoring are ConfigMaps that Grafana's sidecar finds, unchanged.
func TestManagementDashboards(t *testing.T) {
	out := render(t, Release{Chart: "bigfleet", Name: "bigfleet", Namespace: "fleet", Values: oneProvider})
	var got []string
	for doc := range strings.SplitSeq(string(out), "\n---\n") {
		var m corev1.ConfigMap
		if !strings.Contains(doc, "\nkind: ConfigMap\n") {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(doc), &m); err != nil {
			t.Fatal(err)
		}
		for file, text := range m.Data {
			board := strings.TrimSuffix(strings.TrimPrefix(file, "bigfleet-"), ".json")
			if m.Name != "bigfleet-"+board+"-dashboard" || m.Labels["grafana_dashboard"] != "1" || strings.TrimSpace(text) != strings.TrimSpace(string(monitoringFile(t, board+"-dashboard.json"))) {
				t.Errorf("%s in %s %v is not the file", file, m.Name, m.Labels)
			}
			got = append(got, board)
		}
	}
	if slices.Sort(got); !slices.Equal(got, []string{"coordinator", "fleet", "shard", "slo"}) {
		t.Errorf("dashboards %v", got)
	}
	out = render(t, Release{Chart: "bigfleet", Name: "bigfleet", Namespace: "fleet", Values: "dashboards: {enabled: false}\n" + oneProvider})
	if strings.Contains(string(out), "-dashboard") {
		t.Error("dashboards.enabled: false renders dashboards")
	}
}

// backup runs the rendered job against the running group and verifies what it saved (COORD-15.4).
func (m *machine) backup() {
	m.t.Helper()
	r := management()["management"]
	r.Values += "backup: {enabled: true, volume: {emptyDir: {}}}\n"
	var job corev1.PodSpec
	for doc := range strings.SplitSeq(string(render(m.t, r)), "\n---\n") {
		var c batchv1.CronJob
		if strings.Contains(doc, "\n  name: bigfleet-backup\n") && yaml.UnmarshalStrict([]byte(doc), &c) == nil {
			job = c.Spec.JobTemplate.Spec.Template.Spec
		}
	}
	dir := m.t.TempDir()
	file := filepath.Join(dir, "bigfleet-backup-1.tar")
	var args []string
	for _, a := range job.Containers[0].Args {
		a = m.mounted(job, "").Replace(strings.NewReplacer("/backup/", dir+"/", "$(JOB_NAME)", "bigfleet-backup-1").Replace(a))
		if all, ok := strings.CutPrefix(a, "--coordinator="); ok {
			var here []string
			for name := range strings.SplitSeq(all, ",") {
				here = append(here, m.at(name))
			}
			a = "--coordinator=" + strings.Join(here, ",")
		}
		args = append(args, a)
	}
	for _, args := range [][]string{args, args, {"snapshot", "verify", file}} { // a second Pod of the Job writes the same file
		if out, err := exec.CommandContext(m.t.Context(), m.binary, args...).CombinedOutput(); err != nil {
			m.t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}

// OPS-8.4, OPS-8.1: each Pod of a StatefulSet has a certificate of its own name, and reads it from a directory of that name. With an
// issuer the chart orders them, each with one identity, for both sides of a connection; else they are the Secrets NAME-ORDINAL.
func TestEachPodHasItsOwnIdentity(t *testing.T) {
	out := render(t, management()["management-everything"])
	type certificate struct {
		Spec struct {
			SecretName             string
			URIs, DNSNames, Usages []string
		}
	}
	ordered := map[string]certificate{}
	for doc := range strings.SplitSeq(string(out), "\n---\n") {
		if strings.Contains(doc, "\nkind: Certificate\n") {
			var c certificate
			if err := yaml.Unmarshal([]byte(doc), &c); err != nil {
				t.Fatal(err)
			}
			ordered[c.Spec.SecretName] = c
		}
	}
	for role, s := range statefulSets(t, out) {
		args := strings.Join(s.Spec.Template.Spec.Containers[0].Args, "\n")
		if !strings.Contains(args, "--tls-cert=/etc/bigfleet/tls/$(POD_NAME)/tls.crt") || !strings.Contains(args, "--tls-key=/etc/bigfleet/tls/$(POD_NAME)/tls.key") {
			t.Errorf("%s reads no certificate of its own:\n%s", role, args)
		}
		secretOf := map[string]string{} // by the Pod's directory
		for _, v := range s.Spec.Template.Spec.Volumes {
			if v.Projected == nil {
				continue
			}
			for _, source := range v.Projected.Sources {
				for _, item := range source.Secret.Items {
					if pod, file, _ := strings.Cut(item.Path, "/"); file == "tls.crt" {
						secretOf[pod] = source.Secret.Name
					}
				}
			}
		}
		for i := range int(*s.Spec.Replicas) {
			pod := fmt.Sprintf("%s-%d", s.Name, i)
			secret := secretOf[pod]
			if !strings.HasSuffix(secret, fmt.Sprintf("-%d", i)) {
				t.Errorf("%s reads the Secret %q", pod, secret)
			}
			c, made := ordered[secret]
			if want := []string{"bigfleet://" + role + "/" + pod}; made && (!slices.Equal(c.Spec.URIs, want) || !slices.Contains(c.Spec.DNSNames, pod+"."+s.Spec.ServiceName+".fleet.svc") || len(c.Spec.Usages) != 2) {
				t.Errorf("%s: the certificate %+v, want the identity %v", pod, c.Spec, want)
			}
			if made != (role == "coordinator") { // the shards' are Secrets that somebody else makes
				t.Errorf("%s: ordered from the issuer: %v", pod, made)
			}
		}
	}
	if len(ordered) != 5 {
		t.Errorf("%d certificates are ordered, want one for each of five coordinators", len(ordered))
	}
}
