package charts

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
)

// OPS-8.4: with csi no Pod mounts the key of another, there is no Secret with one, and each asks for the name of its own Pod.
func TestEachPodHasItsOwnKey(t *testing.T) {
	text := render(t, Release{Chart: "bigfleet", Name: "eu", Namespace: "fleet", Values: noBoards +
		"coordinator: {tls: {csi: true, issuerRef: {name: fleet, kind: ClusterIssuer}}}\n" +
		"shard: {replicas: 2, provider: {addr: \"" + cloud + "\"}, tls: {csi: true, issuerRef: {name: fleet, kind: ClusterIssuer}}}\n"})
	for role, set := range statefulSets(t, text) {
		found := false
		for _, v := range set.Spec.Template.Spec.Volumes {
			if v.Secret != nil || v.Projected != nil {
				t.Errorf("%s mounts Secrets as %s", role, v.Name)
			}
			if v.CSI == nil {
				continue
			}
			found = true
			for key, want := range map[string]string{"issuer-name": "fleet", "issuer-kind": "ClusterIssuer", "uri-sans": "bigfleet://" + role + "/${POD_NAME}", "fs-group": "65532"} {
				if got := v.CSI.VolumeAttributes["csi.cert-manager.io/"+key]; got != want {
					t.Errorf("%s asks for %s %q, want %q", role, key, got, want)
				}
			}
			if names := v.CSI.VolumeAttributes["csi.cert-manager.io/dns-names"]; !strings.HasPrefix(names, "${POD_NAME}.") {
				t.Errorf("%s asks for the names %q", role, names)
			}
		}
		if !found {
			t.Errorf("%s has no key", role)
		}
	}
	if strings.Contains(string(text), "kind: Certificate\n") {
		t.Error("the chart orders Certificates, whose keys are Secrets")
	}
}

// withNotes is chart bigfleet with a template that shows its notes: only an installation prints them.
func withNotes(t *testing.T) string {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	from, to := filepath.Join(root, "deploy", "charts", "bigfleet"), t.TempDir()
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		at := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(at, 0o750)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(at, text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	show := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  notes: {{ include (print $.Template.BasePath \"/NOTES.txt\") . | quote }}\n"
	if err := os.WriteFile(filepath.Join(to, "templates", "show.yaml"), []byte(show), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// OPS-8.4: of several shards each reads its own key alone, wherever the Secrets come from. The Secrets of all are mounted by containers that do nothing but
// copy, and these copy what belongs to the Pod. One shard has no others, and mounts its own.
func TestEachShardReadsItsOwnKey(t *testing.T) {
	binary := proc.BuildT(t, "services/bigfleet")
	for name, values := range map[string]string{
		"the chart's authority": "", "cert-manager": "tls: {issuerRef: {name: fleet}}, ", "Secrets of others": "tls: {secretName: theirs, perOrdinal: true}, ",
	} {
		t.Run(name, func(t *testing.T) {
			of := func(replicas int) corev1.PodSpec {
				text := render(t, Release{Chart: "bigfleet", Name: "eu", Namespace: "fleet",
					Values: noBoards + "console: {enabled: false}\n" + fmt.Sprintf("shard: {replicas: %d, %sprovider: {addr: %q}}\n", replicas, values, cloud)})
				return statefulSets(t, text)["shard"].Spec.Template.Spec
			}
			if alone := of(1); len(alone.InitContainers) != 0 || len(alone.Containers) != 1 {
				t.Errorf("one shard has %d containers that come first, and %d", len(alone.InitContainers), len(alone.Containers))
			}
			shards := of(2)
			secret := map[string]corev1.Volume{}
			for _, v := range shards.Volumes {
				if v.Secret != nil || v.Projected != nil {
					secret[v.Name] = v
				}
			}
			for _, c := range slices.Concat(shards.InitContainers, shards.Containers) {
				copies := len(c.Args) > 1 && c.Args[0] == "certs" && c.Args[1] == "follow"
				for _, m := range c.VolumeMounts {
					if _, is := secret[m.Name]; is != (copies && m.MountPath == "/etc/bigfleet/keys") {
						t.Errorf("container %s mounts %s", c.Name, m.Name)
					}
				}
				if copies && (len(c.Ports) != 0 || c.SecurityContext == nil) {
					t.Errorf("container %s listens on %v, as %v", c.Name, c.Ports, c.SecurityContext)
				}
			}
			if len(secret) != 1 || len(shards.InitContainers) != 1 || len(shards.Containers) != 2 {
				t.Fatalf("%d volumes of Secrets; %d containers that come first, and %d", len(secret), len(shards.InitContainers), len(shards.Containers))
			}

			// What kubelet does for the second Pod.
			keys, tls, secrets := t.TempDir(), t.TempDir(), map[string]map[string][]byte{}
			for _, source := range secret["keys"].Projected.Sources {
				for _, item := range source.Secret.Items {
					pod, _, _ := strings.Cut(item.Path, "/")
					if secrets[pod] == nil {
						secrets[pod] = issued(t, pod)
					}
					if err := os.MkdirAll(filepath.Join(keys, pod), 0o750); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(keys, item.Path), secrets[pod][item.Key], 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			at := strings.NewReplacer("/etc/bigfleet/keys", keys, "/etc/bigfleet/tls", tls, "$(POD_NAME)", "eu-bigfleet-shard-1")
			var args []string
			for _, a := range shards.InitContainers[0].Args {
				args = append(args, at.Replace(a))
			}
			if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil { //nolint:gosec // the program under test
				t.Fatalf("%v: %s", err, out)
			}
			pods, err := os.ReadDir(tls)
			if err != nil || len(pods) != 1 {
				t.Fatalf("the shard sees the directories %v, %v", pods, err)
			}
			for _, a := range shards.Containers[0].Args {
				if flag, path, _ := strings.Cut(a, "="); strings.HasPrefix(flag, "--tls-") {
					if _, err := os.Stat(at.Replace(path)); err != nil {
						t.Errorf("%s: %v", flag, err)
					}
				}
			}
			got, err := os.ReadFile(filepath.Join(tls, "eu-bigfleet-shard-1", "tls.key"))
			if err != nil || !bytes.Equal(got, secrets["eu-bigfleet-shard-1"]["tls.key"]) {
				t.Errorf("the shard reads another key: %v", err)
			}
			if more := shards.Containers[1].Args; !slices.Equal(append(slices.Clone(more), "--once"), shards.InitContainers[0].Args) {
				t.Errorf("renewals are copied by %v", more)
			}
		})
	}
}

// issued is what the Secret of a shard holds.
func issued(t *testing.T, pod string) map[string][]byte {
	t.Helper()
	ca, err := devca.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(devca.Request{URIs: []string{"bigfleet://shard/" + pod}})
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM()}
}

// OPS-8.4: the notes for an installation of several shards say who can read the keys of all of them, and what changes it.
func TestNotesSayWhoReadsKeys(t *testing.T) {
	chart := withNotes(t)
	const one, csi = "provider: {addr: \"" + cloud + "\"}", "tls: {csi: true, issuerRef: {name: fleet}}"
	for shard, warned := range map[string]bool{one: false, "replicas: 2, " + one: true, "replicas: 2, " + one + ", " + csi: false} {
		if notes := string(render(t, Release{Chart: chart, Name: "eu", Namespace: "fleet", Values: noBoards + "shard: {" + shard + "}\n"})); strings.Contains(notes, "shard.tls.csi=true") != warned {
			t.Errorf("%s: the notes warn: %v", shard, !warned)
		}
	}
}
