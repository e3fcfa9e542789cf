package charts

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

var rewrite = flag.Bool("rewrite", false, "write the golden renders again")

const small = "clusterID: red\nshardAddress: bigfleet-shard-0.bigfleet-shard-headless.bigfleet-system.svc:7780\n"

const everything = small + `
tls: {issuerRef: {name: fleet, kind: ClusterIssuer}, required: true}
bootstrap:
  template: |
    #!/bin/sh
    echo {{ .MachineID }} {{ .Token }}
  caBundle: |
    -----BEGIN CERTIFICATE-----
    MIIB
    -----END CERTIFICATE-----
  kubeletVersion: v1.35.2
  apiServerURL: https://api.red.example.com:6443
otlpEndpoint: otel.observability:4317
metrics: {podMonitor: {enabled: true, labels: {team: fleet}}, serviceMonitor: {enabled: true}}
alerts: {labels: {release: prometheus}}
networkPolicy: {apiServerCIDRs: [10.0.0.1/32], metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: CriticalAddonsOnly, operator: Exists}]
podAnnotations: {example.com/a: b}
podLabels: {example.com/c: d}
priorityClassName: system-cluster-critical
extraArgs: [--ack-qps=100]
extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
extraVolumes: [{name: extra, emptyDir: {}}]
extraVolumeMounts: [{name: extra, mountPath: /extra}]
imagePullSecrets: [{name: pull}]
admissionPolicy: {create: true}
`

func releases() map[string]Release {
	monitoring := []string{"monitoring.coreos.com/v1"}
	all := providers()
	maps.Copy(all, management())
	maps.Copy(all, map[string]Release{
		"crds":                      {Chart: "bigfleet-crds", Name: "crds", Namespace: "bigfleet-system"},
		"operator":                  {Chart: "bigfleet-operator", Name: "bigfleet-operator", Namespace: "bigfleet-system", Values: small + "crds: {install: false}\n"},
		"operator-everything":       {Chart: "bigfleet-operator", Name: "edge", Namespace: "bigfleet-system", Values: everything + "crds: {install: false}\n", APIs: monitoring},
		"operator-stub":             {Chart: "bigfleet-operator", Name: "edge", Namespace: "bf", Values: small + "crds: {install: false}\nreplicas: 1\nbootstrap: {renderer: stub}\nnetworkPolicy: {enabled: false}\nflowSchema: {create: false}\ndashboards: {enabled: false}\n"},
		"pod-controller":            {Chart: "bigfleet-pod-controller", Name: "bigfleet-pod-controller", Namespace: "bigfleet-system"},
		"pod-controller-everything": {Chart: "bigfleet-pod-controller", Name: "pc", Namespace: "bigfleet-system", Values: "priorityClassDefaults: {batch-high: {interruptionPenalty: 64, reclamationPenalty: 500m}}\nexcludeNamespaces: [kube-system, lab]\nmetrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}\notlpEndpoint: otel:4317\nserviceAccount: {create: false, name: existing}\n"},
	})
	return all
}

func render(t testing.TB, r Release) []byte {
	t.Helper()
	out, err := Render(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// OPS-7.1: golden renders. Run with -rewrite and look at the difference.
func TestGolden(t *testing.T) {
	for name, r := range releases() {
		t.Run(name, func(t *testing.T) {
			got := render(t, r)
			file := filepath.Join("testdata", name+".yaml")
			if name == "crds" { // the definitions are compared by a test of sdk/kube; here counts that they are rendered
				if n := bytes.Count(got, []byte("kind: CustomResourceDefinition")); n != 3 || !bytes.Contains(got, []byte("helm.sh/resource-policy: keep")) {
					t.Errorf("%d definitions", n)
				}
				return
			}
			if *rewrite {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the render of %s changed; look at `go test ./charts -run TestGolden -rewrite && git diff`", name)
			}
		})
	}
}

// OPS-7.2, OPS-7.1: the schema refuses what the templates could not know, with a message that names the value.
func TestBadValues(t *testing.T) {
	for values, want := range map[string]string{
		"":                                     "clusterID is required",
		"clusterID: red":                       "shardAddress is required",
		small + "replica: 2":                   "replica",
		small + "replicas: 0":                  "replicas",
		small + "bootstrap: {renderer: magic}": "renderer",
		small + "bootstrap: {ttl: soon}":       "ttl",
		small + "bootstrap: {apiServerURL: http://x}":                           "apiServerURL",
		small + "logLevel: loud":                                                "logLevel",
		small + "image: {digest: md5:1}":                                        "digest",
		"clusterID: red\nshardAddress: bigfleet-shard.bigfleet-system.svc:7780": "names the Service of all shards",
		"clusterID: red\nshardAddress: bigfleet-shard:7780":                     "names the Service of all shards",
		"clusterID: \"-red\"\nshardAddress: a:1":                                "clusterID",
		"clusterID: red\nshardAddress: nowhere":                                 "want host:port",
		"clusterID: red\nshardAddress: https://a:1":                             "want host:port",
		"clusterID: red\nshardAddress: a:65536":                                 "between 1 and 65535",
		"clusterID: red\nshardAddress: a:0":                                     "between 1 and 65535",
		small + "bootstrap: {renderer: template}":                               "bootstrap.template is empty",
		small + "bootstrap: {renderer: stub, template: x}":                      "would be ignored",
		small + "bootstrap: {caBundle: hello}":                                  "no PEM certificate",
		small + "bootstrap: {tokenPool: 1025}":                                  "tokenPool",
		"clusterID: a_b\nshardAddress: a:1":                                     "set tls.secretName",
		small + "tls: {secretName: a, issuerRef: {name: b}}":                    "both set",
		small + "tls: {issuerRef: {kind: Issuer}}":                              "issuerRef.name is required",
		small + "extraArgs: [--cluster-id=blue]":                                "set by a value of the chart",
	} {
		_, err := Render(t.Context(), Release{Chart: "bigfleet-operator", Name: "x", Namespace: "x", Values: values})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that names %s", values, err, want)
		}
	}
	for values, want := range map[string]string{
		"workers: 0": "workers", "bestEffortFloor: lots": "want name=quantity", "priorityClassDefaults: {a: {penalty: 1}}": "penalty", "unmanagedNodeSelector: \"\"": "unmanagedNodeSelector",
		"workers: 257": "workers", "bestEffortFloor: cpu=x": "not a quantity of cpu", "priorityClassDefaults: {a: {interruptionPenalty: -1}}": "minimum",
		"priorityClassDefaults: {a: {reclamationPenalty: lots}}": "not an amount of dollars", "excludeNamespaces: [\"kube-*\"]": "no name of a namespace",
	} {
		_, err := Render(t.Context(), Release{Chart: "bigfleet-pod-controller", Name: "x", Namespace: "x", Values: values})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that names %s", values, err, want)
		}
	}
}

func TestLint(t *testing.T) {
	for _, r := range releases() {
		if _, err := run(t.Context(), r.Chart, r.Values, "lint", ".", "--strict", "--kube-version", KubeVersion, "--values", "-"); err != nil {
			t.Error(err)
		}
	}
}

func deployment(t testing.TB, render []byte) *appsv1.Deployment {
	t.Helper()
	return rendered[appsv1.Deployment](t, render, "Deployment")
}

// rendered is the first object of a kind, read strictly.
func rendered[T any](t testing.TB, render []byte, kind string) *T {
	t.Helper()
	for doc := range strings.SplitSeq(string(render), "\n---\n") {
		if strings.Contains(doc, "\nkind: "+kind+"\n") {
			var object T
			if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
				t.Fatal(err)
			}
			return &object
		}
	}
	t.Fatalf("no %s in the render", kind)
	return nil
}

// OPS-7.3: the restricted level, and a read-only root.
func TestSecurityDefaults(t *testing.T) {
	for _, name := range []string{"operator", "pod-controller"} {
		d := deployment(t, render(t, releases()[name]))
		p, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
		switch {
		case p.SecurityContext == nil || !*p.SecurityContext.RunAsNonRoot || p.SecurityContext.SeccompProfile.Type != "RuntimeDefault",
			c.SecurityContext == nil || *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem,
			len(c.SecurityContext.Capabilities.Drop) != 1 || c.SecurityContext.Capabilities.Drop[0] != "ALL":
			t.Errorf("%s: security context %+v, %+v", name, p.SecurityContext, c.SecurityContext)
		}
	}
}

// OPS-8.6: every program of the charts that others call, or that calls others than its API server, has a certificate and refuses to start
// without, as long as no value turns that off.
func TestTLSIsRequired(t *testing.T) {
	for name, r := range releases() {
		if name == "crds" || strings.HasPrefix(name, "pod-controller") { // it talks to its API server alone
			continue
		}
		programs := 0
		for doc := range strings.SplitSeq(string(render(t, r)), "\n---\n") {
			if !strings.Contains(doc, "\nkind: Deployment\n") && !strings.Contains(doc, "\nkind: StatefulSet\n") {
				continue
			}
			programs++
			for _, want := range []string{"- --require-tls\n", "- --tls-cert=", "- --tls-key=", "- --tls-ca="} {
				if !strings.Contains(doc, want) {
					t.Errorf("%s: a workload without %s:\n%s", name, want, doc)
				}
			}
		}
		if programs == 0 {
			t.Errorf("%s has no workload", name)
		}
	}
	open := render(t, Release{Chart: "bigfleet", Name: "bigfleet", Namespace: "bigfleet-system", Values: oneProvider + noBoards + "requireTLS: false\n"})
	if bytes.Contains(open, []byte("--require-tls")) {
		t.Error("requireTLS=false does not turn it off, so this test shows nothing")
	}
}

// OP-7.4: no volume is mounted inside another: a read-only one has no place for the second, and the Pod does not start.
func TestMountsAreSideBySide(t *testing.T) {
	for name, r := range releases() {
		for doc := range strings.SplitSeq(string(render(t, r)), "\n---\n") {
			var d appsv1.Deployment
			if yaml.Unmarshal([]byte(doc), &d) != nil || d.Kind != "Deployment" {
				continue
			}
			for _, c := range d.Spec.Template.Spec.Containers {
				for _, a := range c.VolumeMounts {
					for _, b := range c.VolumeMounts {
						if a.Name != b.Name && strings.HasPrefix(b.MountPath+"/", a.MountPath+"/") {
							t.Errorf("%s: %s is mounted at %s, inside %s at %s", name, b.Name, b.MountPath, a.Name, a.MountPath)
						}
					}
				}
			}
		}
	}
}

// OP-16: the rights are exactly those of the table.
func TestRights(t *testing.T) {
	want := map[string][]string{
		"operator ClusterRole": {
			"capacityrequests.bigfleet.lucy.sh list,watch", "capacityrequests/status.bigfleet.lucy.sh patch",
			"upcomingnodes.bigfleet.lucy.sh get,list,watch,create,patch,delete", "availablecapacities.bigfleet.lucy.sh get,list,watch,create,patch,delete",
			"upcomingnodes/status.bigfleet.lucy.sh patch", "availablecapacities/status.bigfleet.lucy.sh patch", "nodes list,watch,patch,delete", "pods list,watch", "daemonsets.apps list,watch",
			"poddisruptionbudgets.policy list,watch",
			"pods/eviction create", "events create,patch", "csinodes.storage.k8s.io list,watch",
		},
		"operator Role bigfleet-system": {"leases.coordination.k8s.io get,create,update", "configmaps get,list,watch,create,patch"},
		"operator Role kube-public":     {"configmaps=cluster-info get"},
		"operator Role kube-system":     {"secrets create,delete"},
		"pod-controller ClusterRole": {
			"persistentvolumeclaims list,watch", "persistentvolumes list,watch", "storageclasses.storage.k8s.io list,watch",
			"podgroups.scheduling.k8s.io list,watch", "podgroups.scheduling.x-k8s.io list,watch", "podgroups.scheduling.volcano.sh list,watch", "jobsets.jobset.x-k8s.io list,watch",
			"resourceclaims.resource.k8s.io list,watch", "resourceclaimtemplates.resource.k8s.io list,watch", "deviceclasses.resource.k8s.io list,watch",
			"pods list,watch", "nodes list,watch", "upcomingnodes.bigfleet.lucy.sh list,watch", "capacityrequests.bigfleet.lucy.sh get,list,watch,create,patch,delete", "events create,patch",
		},
		"pod-controller Role bigfleet-system": {"leases.coordination.k8s.io get,create,update"},
	}
	got := map[string][]string{}
	for _, name := range []string{"operator", "pod-controller"} {
		for doc := range strings.SplitSeq(string(render(t, releases()[name])), "\n---\n") {
			var r rbacv1.Role
			if yaml.Unmarshal([]byte(doc), &r) != nil || r.Kind != "Role" && r.Kind != "ClusterRole" {
				continue
			}
			if r.Labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "" {
				continue // TestRightsOfPeople
			}
			key := strings.TrimSpace(name + " " + r.Kind + " " + r.Namespace)
			for _, rule := range r.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						if group != "" {
							resource += "." + group
						}
						if len(rule.ResourceNames) > 0 {
							resource += "=" + strings.Join(rule.ResourceNames, ",")
						}
						got[key] = append(got[key], resource+" "+strings.Join(rule.Verbs, ","))
					}
				}
			}
		}
	}
	for key := range want {
		slices.Sort(want[key])
		slices.Sort(got[key])
		if !slices.Equal(want[key], got[key]) {
			t.Errorf("%s:\n got %v\nwant %v", key, got[key], want[key])
		}
	}
	if len(got) != len(want) {
		t.Errorf("roles %v", got)
	}
	stub := render(t, releases()["operator-stub"])
	if bytes.Contains(stub, []byte("secrets")) || bytes.Contains(stub, []byte("bootstrappers")) {
		t.Error("a renderer without tokens has rights on them")
	}
}

// OP-7.8, OP-7.17: client certificates of nodes are approved by themselves, and no other certificate is.
func TestApprovals(t *testing.T) {
	const approvals = "system:certificates.k8s.io:certificatesigningrequests:"
	var got []string
	for doc := range strings.SplitSeq(string(render(t, releases()["operator"])), "\n---\n") {
		var b rbacv1.ClusterRoleBinding
		if yaml.Unmarshal([]byte(doc), &b) != nil || b.Kind != "ClusterRoleBinding" || !strings.HasPrefix(b.RoleRef.Name, "system:") {
			continue
		}
		for _, s := range b.Subjects {
			got = append(got, b.RoleRef.Name+" for "+s.Name)
		}
	}
	slices.Sort(got)
	want := []string{
		approvals + "nodeclient for system:bootstrappers:bigfleet", approvals + "selfnodeclient for system:nodes",
		"system:node-bootstrapper for system:bootstrappers:bigfleet",
	}
	if !slices.Equal(got, want) {
		t.Errorf("roles of Kubernetes:\n got %v\nwant %v", got, want)
	}
}

// OP-16.2: who views a namespace reads its requests, who edits it writes them; neither may write the operator's own objects.
func TestRightsOfPeople(t *testing.T) {
	got := map[string][]string{}
	for doc := range strings.SplitSeq(string(render(t, releases()["operator"])), "\n---\n") {
		var r rbacv1.ClusterRole
		if yaml.Unmarshal([]byte(doc), &r) != nil || r.Kind != "ClusterRole" {
			continue
		}
		for _, to := range []string{"view", "edit", "admin"} {
			if r.Labels["rbac.authorization.k8s.io/aggregate-to-"+to] == "true" {
				for _, rule := range r.Rules {
					got[to] = append(got[to], strings.Join(rule.Resources, ",")+" "+strings.Join(rule.Verbs, ","))
				}
			}
		}
	}
	read, write := "capacityrequests,upcomingnodes,availablecapacities get,list,watch", "capacityrequests create,update,patch,delete,deletecollection"
	for to, want := range map[string][]string{"view": {read}, "edit": {read, write}, "admin": {read, write}} {
		slices.Sort(want)
		slices.Sort(got[to])
		if !slices.Equal(got[to], want) {
			t.Errorf("%s gets %v, want %v", to, got[to], want)
		}
	}
}

// OPS-7.1: the programs take the rendered arguments.
func TestArgumentsAreFlags(t *testing.T) {
	for name, command := range map[string]func() *cobra.Command{
		"operator": operator.NewCommand, "operator-stub": operator.NewCommand, "operator-everything": operator.NewCommand,
		"pod-controller": podcontroller.NewCommand, "pod-controller-everything": podcontroller.NewCommand,
	} {
		t.Run(name, func(t *testing.T) {
			args := deployment(t, render(t, releases()[name])).Spec.Template.Spec.Containers[0].Args
			cmd := command()
			cmd.SetArgs(append(slices.Clone(args), "--print-config"))
			var out bytes.Buffer
			cmd.SetOut(&out)
			if err := cmd.Execute(); err != nil {
				t.Fatalf("%v: %v", args, err)
			}
			for _, a := range args {
				flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
				if !strings.Contains(out.String(), flag+":") {
					t.Errorf("--%s is not in the effective configuration:\n%s", flag, out.String())
				}
			}
		})
	}
}

// OPS-7.1, OPS-7.6: a real API server takes every object by server-side apply, twice, and the real programs start with
// the rendered arguments.
func TestApplyAndStart(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{Omit: []controlplane.Component{controlplane.Kwok}})
	if err := cp.ApplyYAML(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: bigfleet-system}\n")); err != nil {
		t.Fatal(err)
	}
	all := releases()
	withCRDs := all["operator"]
	withCRDs.Values = small
	for range 2 {
		for _, r := range append(applied(), all["crds"], withCRDs, all["pod-controller"]) {
			if err := cp.ApplyYAML(t.Context(), render(t, r)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, main := range map[string]string{
		"operator": "services/operator/cmd/bigfleet-operator", "pod-controller": "services/podcontroller/cmd/bigfleet-podcontroller",
	} {
		t.Run(name, func(t *testing.T) {
			binary := proc.BuildT(t, main)
			port, err := loopback.Reserve()
			if err != nil {
				t.Fatal(err)
			}
			defer port.Release()
			sa := "system:serviceaccount:bigfleet-system:bigfleet-" + name
			kubeconfig, err := cp.UserKubeconfig(sa, "system:serviceaccounts", "system:authenticated")
			if err != nil {
				t.Fatal(err)
			}
			args := slices.Clone(deployment(t, render(t, all[name])).Spec.Template.Spec.Containers[0].Args)
			for i, a := range args {
				a = strings.ReplaceAll(a, "$(POD_NAMESPACE)", "bigfleet-system")
				if strings.HasPrefix(a, "--metrics-addr=") {
					a = "--metrics-addr=" + port.Addr()
				}
				args[i] = a
			}
			args = append(withCertificate(t, args, "cluster/red"), "--kubeconfig", kubeconfig)
			if name == "operator" { // there is no cluster-info here
				args = append(args, "--apiserver-url", cp.Endpoint())
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p, err := proc.Start(ctx, proc.Config{Name: name, Path: binary, Args: args, LogFile: filepath.Join(t.TempDir(), "log"), Ready: proc.HTTP("http://"+port.Addr()+"/readyz", nil)})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	startProviders(t, cp)
	t.Run("admission", func(t *testing.T) { admission(t, cp) })
	t.Run("tokens", func(t *testing.T) { tokens(t, cp) })
}

// OP-17.5: the committed definitions and deep copies are what controller-gen makes of the types.
func TestDefinitionsAreGenerated(t *testing.T) {
	binary, err := tool(t.Context(), "kube", "sigs.k8s.io/controller-tools/cmd/controller-gen")
	if err != nil {
		t.Fatal(err)
	}
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	module, fresh := filepath.Join(root, "sdk", "kube"), t.TempDir()
	for _, generator := range [][]string{
		{"crd", "paths=./v1alpha1", "output:crd:dir=" + filepath.Join(fresh, "crds")},
		{"object", "paths=./v1alpha1", "output:object:dir=" + filepath.Join(fresh, "v1alpha1")},
	} {
		cmd := exec.CommandContext(t.Context(), binary, generator...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("controller-gen: %v\n%s", err, out)
		}
	}
	files, err := filepath.Glob(filepath.Join(fresh, "*", "*"))
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		rel, _ := filepath.Rel(fresh, f)
		want, errWant := os.ReadFile(f)
		got, errGot := os.ReadFile(filepath.Join(module, rel))
		if err := errors.Join(errWant, errGot); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("sdk/kube/%s is not what controller-gen makes: run make generate", rel)
		}
	}
}
