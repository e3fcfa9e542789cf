package charts

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/template"
	"github.com/bigfleet-dev/bigfleet/services/providers/aws"
	"github.com/bigfleet-dev/bigfleet/services/providers/clusterapi"
	"github.com/bigfleet-dev/bigfleet/services/providers/hosts"
	"github.com/bigfleet-dev/bigfleet/services/providers/kwok"
	"github.com/bigfleet-dev/bigfleet/services/providers/sim"
)

const everyProviderValue = `
provider: east
adoptStore: 00112233445566778899aabbccddeeff
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
persistence: {size: 4Gi, storageClassName: fast}
tls: {issuerRef: {name: fleet, kind: ClusterIssuer}, required: true, shardSAN: false}
service: {rpcPort: 9100, metricsPort: 9190, annotations: {a: b}}
networkPolicy: {from: [{podSelector: {matchLabels: {app: shard}}}], metricsFrom: [{namespaceSelector: {}}]}
serviceAccount: {annotations: {cloud.example/role: provider}, automountToken: true}
metrics: {podMonitor: {enabled: true, labels: {team: fleet}}, serviceMonitor: {enabled: true}}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: control, operator: Exists}]
podAnnotations: {example.com/a: b}
podLabels: {example.com/c: d}
priorityClassName: system-cluster-critical
logLevel: debug
otlpEndpoint: collector.observability:4317
extraArgs: [--reconcile-interval=20s]
extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
envFrom: [{secretRef: {name: cloud}}]
extraVolumes: [{name: extra, emptyDir: {}}]
extraVolumeMounts: [{name: extra, mountPath: /extra}]
imagePullSecrets: [{name: pull}]
`

// providers are the releases of the charts that stand on the library.
func providers() map[string]Release {
	return map[string]Release{
		"provider": {Chart: "bigfleet-provider", Name: "acme", Namespace: "bigfleet-system", Values: "image: {repository: registry.example/acme, tag: v1}\nconfig: {endpoint: x}\n"},
		"sim":      {Chart: "bigfleet-provider-sim", Name: "sim", Namespace: "bigfleet-system"},
		"sim-everything": {Chart: "bigfleet-provider-sim", Name: "bigfleet-provider-sim-east", Namespace: "bigfleet-system",
			Values: everyProviderValue + "config: {preset: lively, seed: 7, seed_count: 200, time_scale: 60}\n", APIs: []string{"monitoring.coreos.com/v1"}},
		"hosts": {Chart: "bigfleet-provider-hosts", Name: "hosts", Namespace: "bigfleet-system", Values: `
kubeconfigs: {secretName: clusters}
tls: {secretName: provider-tls}
power: {secretName: bmc}
agents: {service: {type: NodePort, port: 9443}, from: [{ipBlock: {cidr: 10.0.0.0/8}}]}
inventory:
  defaults: {type: rack.64x, zone: dc1-a, resources: {cpu: "64", memory: 256Gi}}
  hosts: [{name: node-001, rack: r1}]
`},
		"aws": {Chart: "bigfleet-provider-aws", Name: "aws", Namespace: "bigfleet-system", Values: `
kubeconfigs: {secretName: clusters}
serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::123456789012:role/bigfleet-provider"}}
config:
  region: us-east-1
  launch_template: {name: nodes}
  idle: stopped
  offerings:
  - {name: m5, instance_type: m5.large, zone: us-east-1a, capacity_type: on_demand, count: 20, price_per_hour: 0.096, resources: {cpu: "2", memory: 8Gi}}
`},
		"clusterapi": {Chart: "bigfleet-provider-clusterapi", Name: "clusterapi", Namespace: "bigfleet-system", Values: `
rbac: {namespaces: [default]}
config:
  namespace: default
  templates: {large: {api_version: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevMachineTemplate, name: large}}
  offerings:
  - {name: large, instance_type: large, zone: zone-a, capacity_type: on_demand, count: 20, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}
`},
		"kwok": {Chart: "bigfleet-provider-kwok", Name: "kwok", Namespace: "bigfleet-system", Values: "kubeconfigs: {secretName: clusters}\n"},
		"kwok-bare": {Chart: "bigfleet-provider-kwok", Name: "kwok", Namespace: "bf", Values: `
config: {default: {kubeconfig: /k/all}, delays: {create: 40s}}
persistence: {enabled: false}
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
serviceAccount: {create: false, name: existing}
tls: {secretName: provider-tls}
extraVolumes: [{name: k, secret: {secretName: k}}]
extraVolumeMounts: [{name: k, mountPath: /k}]
`},
	}
}

func statefulSet(t testing.TB, render []byte) *appsv1.StatefulSet {
	t.Helper()
	return rendered[appsv1.StatefulSet](t, render, "StatefulSet")
}

// PROV-28.15, 20.3: the schemas are the library's and, under config, what the programs print.
func TestProviderSchemas(t *testing.T) {
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	for chart, command := range map[string]func() *cobra.Command{
		"bigfleet-provider": nil, "bigfleet-provider-sim": sim.NewCommand, "bigfleet-provider-kwok": kwok.NewCommand,
		"bigfleet-provider-clusterapi": clusterapi.NewCommand,
		"bigfleet-provider-hosts":      hosts.NewCommand,
		"bigfleet-provider-aws":        aws.NewCommand,
	} {
		var printed bytes.Buffer
		if command != nil {
			cmd := command()
			cmd.SetOut(&printed)
			cmd.SetArgs([]string{"--print-schema"})
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(root, "deploy", "charts", chart, "values.schema.json")
		old, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := template.ValuesSchema(old, printed.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		} else if !bytes.Equal(old, want) {
			t.Errorf("%s is not what the program says: go test ./charts -run TestProviderSchemas -rewrite", file)
		}
	}
}

// OPS-7.2: what cannot work is refused with the name of the value.
func TestBadProviderValues(t *testing.T) {
	kubeconfigs := "kubeconfigs: {secretName: x}\n"
	for _, c := range []struct{ chart, values, want string }{
		{"bigfleet-provider", "", "image.repository is required"},
		{"bigfleet-provider-kwok", "", "kubeconfigs.secretName is required"},
		{"bigfleet-provider-clusterapi", "", "rbac.namespaces is empty"},
		{"bigfleet-provider-clusterapi", "rbac: {namespaces: [a]}\nserviceAccount: {automountToken: false}", "serviceAccount.automountToken must be true"},
		{"bigfleet-provider-clusterapi", "rbac: {namespaces: [a]}\nconfig: {templates: {x: {version: v1}}}", "version"},
		{"bigfleet-provider-kwok", kubeconfigs + "config: {kubeconfigs: x}", "kubeconfigs"},
		{"bigfleet-provider-kwok", kubeconfigs + "config: {delays: {create: soon}}", "create"},
		{"bigfleet-provider-aws", "config: {launch_template: {name: x}}", "kubeconfigs.secretName is required"},
		{"bigfleet-provider-aws", kubeconfigs, "config.launch_template is required"},
		{"bigfleet-provider-aws", kubeconfigs + "config: {launch_template: {name: x}, idle_state: x}", "idle_state"},
		{"bigfleet-provider-hosts", "tls: {secretName: x}", "kubeconfigs.secretName is required"},
		{"bigfleet-provider-hosts", kubeconfigs, "tls.secretName or tls.issuerRef is required"},
		{"bigfleet-provider-hosts", kubeconfigs + "tls: {secretName: x}\ninventory: {host: []}", "host"},
		{"bigfleet-provider-hosts", kubeconfigs + "tls: {secretName: x}\nagents: {service: {port: 0}}", "port"},
		{"bigfleet-provider-sim", "config: {presets: calm}", "presets"},
		{"bigfleet-provider-sim", "config: {addr: ':1'}", "addr"}, // the chart's, by a flag that would win in silence
		{"bigfleet-provider-sim", "replicas: 2", "replicas"},      // one process holds the state
		{"bigfleet-provider-sim", "provider: East", "provider"},
		{"bigfleet-provider-sim", "persistence: {size: big}", "size"},
		{"bigfleet-provider-sim", "networkPolicy: {from: []}", "from"},
		{"bigfleet-provider-sim", "logLevel: loud", "logLevel"},
		{"bigfleet-provider-sim", "extraArgs: [x]", "extraArgs"},
		{"bigfleet-provider-sim", "serviceAccount: {create: false}", "serviceAccount.name is required"},
	} {
		_, err := Render(t.Context(), Release{Chart: c.chart, Name: "x", Namespace: "x", Values: c.values})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q: %v, want an error that names %s", c.chart, c.values, err, c.want)
		}
	}
}

// PROV-28.15, OPS-7.3, OPS-7.5: one process, reached by shards alone, state on a claim that stays, no rights, a read-only root, probes, the configuration's
// checksum; a token of the API server for none.
func TestProviderDefaults(t *testing.T) {
	for name, r := range providers() {
		s := statefulSet(t, render(t, r))
		p, c := s.Spec.Template.Spec, s.Spec.Template.Spec.Containers[0]
		switch {
		case *s.Spec.Replicas != 1, s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement:
			t.Errorf("%s: replicas %d, %s", name, *s.Spec.Replicas, s.Spec.PodManagementPolicy)
		case p.SecurityContext == nil || !*p.SecurityContext.RunAsNonRoot || p.SecurityContext.SeccompProfile.Type != "RuntimeDefault",
			c.SecurityContext == nil || *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem,
			len(c.SecurityContext.Capabilities.Drop) != 1 || c.SecurityContext.Capabilities.Drop[0] != "ALL":
			t.Errorf("%s: security context %+v, %+v", name, p.SecurityContext, c.SecurityContext)
		case c.ReadinessProbe == nil || c.LivenessProbe == nil || c.StartupProbe == nil || s.Spec.Template.Annotations["checksum/config"] == "":
			t.Errorf("%s: probes or checksum are missing", name)
		case name != "sim-everything" && *p.AutomountServiceAccountToken != (name == "clusterapi"):
			t.Errorf("%s: an unneeded token", name)
		case (name == "sim" || name == "kwok") && !onlyShards(t, render(t, providers()[name])):
			t.Errorf("%s: others than shards reach it", name)
		case name != "kwok-bare" && (len(s.Spec.VolumeClaimTemplates) != 1 || s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted != appsv1.RetainPersistentVolumeClaimRetentionPolicyType):
			t.Errorf("%s: the state is not kept", name)
		}
	}
	sim := providers()["sim"]
	before := statefulSet(t, render(t, sim)).Spec.Template.Annotations["checksum/config"]
	sim.Values = "config: {seed: 2}"
	if after := statefulSet(t, render(t, sim)).Spec.Template.Annotations["checksum/config"]; after == before {
		t.Error("a change of the configuration does not restart the Pod")
	}
}

// onlyShards reports whether the RPC port is open to the Pods of shards alone.
func onlyShards(t *testing.T, render []byte) bool {
	t.Helper()
	for _, rule := range rendered[networkingv1.NetworkPolicy](t, render, "NetworkPolicy").Spec.Ingress {
		for _, p := range rule.Ports {
			if p.Port.StrVal != "rpc" {
				continue
			}
			for _, from := range rule.From {
				if from.PodSelector == nil || from.PodSelector.MatchLabels["app.kubernetes.io/component"] != "shard" || from.PodSelector.MatchLabels["app.kubernetes.io/part-of"] != "bigfleet" {
					return false
				}
			}
			return len(rule.From) > 0
		}
	}
	return false
}

// OPS-7.1: the programs take the rendered arguments and the rendered file.
func TestProviderArguments(t *testing.T) {
	for name, command := range map[string]func() *cobra.Command{
		"sim": sim.NewCommand, "sim-everything": sim.NewCommand, "kwok": kwok.NewCommand, "kwok-bare": kwok.NewCommand, "hosts": hosts.NewCommand, "aws": aws.NewCommand,
	} {
		t.Run(name, func(t *testing.T) {
			out := render(t, providers()[name])
			dir := t.TempDir()
			args := moved(t, out, dir, nil)
			cmd := command()
			cmd.SetArgs(append(args, "--print-config"))
			var printed bytes.Buffer
			cmd.SetOut(&printed)
			if err := cmd.Execute(); err != nil {
				t.Fatalf("%v: %v", args, err)
			}
			var want, got map[string]any
			if err := yaml.Unmarshal([]byte(settings(t, out)), &want); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(printed.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			for key := range want {
				if _, ok := got[key]; !ok {
					t.Errorf("%s of the rendered file is not in force", key)
				}
			}
		})
	}
}

// moved is the rendered command line with the Pod's paths in a directory, where the rendered file is written.
func moved(t testing.TB, out []byte, dir string, ports map[string]string) (args []string) {
	t.Helper()
	config := filepath.Join(dir, "etc", "config", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(settings(t, out)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range statefulSet(t, out).Spec.Template.Spec.Containers[0].Args {
		name, _, _ := strings.Cut(a, "=")
		if port := ports[name]; port != "" {
			a = name + "=" + port
		}
		args = append(args, a)
	}
	args = withCertificate(t, args, "shard/shard-0")
	for i, a := range args {
		args[i] = strings.NewReplacer("/etc/bigfleet", filepath.Join(dir, "etc"), "/var/lib/bigfleet", dir).Replace(a)
	}
	return args
}

// withCertificate puts the files of a certificate where the arguments say that the Pod has its own.
func withCertificate(t testing.TB, args []string, id string) []string {
	t.Helper()
	ca, err := devca.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.Parse("bigfleet://" + id)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Write(t.TempDir(), "tls", devca.For(who))
	if err != nil {
		t.Fatal(err)
	}
	to := strings.NewReplacer("/etc/bigfleet/tls/tls.crt", files.Cert, "/etc/bigfleet/tls/tls.key", files.Key, "/etc/bigfleet/tls/ca.crt", files.CA)
	out := slices.Clone(args)
	for i := range out {
		out[i] = to.Replace(out[i])
	}
	return out
}

// startProviders runs the real programs with the rendered arguments until they are ready. The kubeconfigs of kwok are those
// of a real API server.
func startProviders(t *testing.T, cp *controlplane.ControlPlane) {
	for name, main := range map[string]string{
		"sim": "services/providers/sim/cmd/bigfleet-provider-sim", "kwok": "services/providers/kwok/cmd/bigfleet-provider-kwok",
	} {
		t.Run("provider-"+name, func(t *testing.T) {
			binary := proc.BuildT(t, main)
			ports, err := loopback.ReserveN(2)
			if err != nil {
				t.Fatal(err)
			}
			defer ports[0].Release()
			defer ports[1].Release()
			dir := t.TempDir()
			args := moved(t, render(t, providers()[name]), dir, map[string]string{"--addr": ports[0].Addr(), "--metrics-addr": ports[1].Addr()})
			if name == "sim" {
				args = append(args, "--sim-control-addr=off") // its port is fixed, and there may be another sim here
			}
			kubeconfig, err := cp.UserKubeconfig("bigfleet-provider-kwok", "system:masters")
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			clusters := filepath.Join(dir, "etc", "clusters")
			if err := os.MkdirAll(clusters, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(clusters, "red.kubeconfig"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			p, err := proc.Start(ctx, proc.Config{Name: name, Path: binary, Args: args, LogFile: filepath.Join(dir, "log"), Ready: proc.HTTP("http://"+ports[1].Addr()+"/readyz", nil)})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "provider.db")); err != nil {
				t.Error("the state is not on the volume:", err)
			}
		})
	}
}

// applied are the releases that a real API server takes as they are: those without objects of other projects.
func applied() (out []Release) {
	for _, name := range slices.Sorted(maps.Keys(providers())) {
		if name != "sim-everything" && name != "kwok-bare" {
			out = append(out, providers()[name])
		}
	}
	return append(out, management()["management"])
}
