package charts

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
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

// OPS-8.4: by default the Pods of several shards mount each other's keys, and who installs such a release is told, and what changes it. One shard has nobody to
// trust.
func TestNotesSayWhoSharesKeys(t *testing.T) {
	chart := withNotes(t)
	const one, csi = "provider: {addr: \"" + cloud + "\"}", "tls: {csi: true, issuerRef: {name: fleet}}"
	for shard, told := range map[string]bool{one: false, "replicas: 2, " + one: true, "replicas: 2, " + one + ", " + csi: false} {
		if notes := string(render(t, Release{Chart: chart, Name: "eu", Namespace: "fleet", Values: noBoards + "shard: {" + shard + "}\n"})); strings.Contains(notes, "shard.tls.csi=true") != told {
			t.Errorf("%s: told %v", shard, !told)
		}
	}
	text := render(t, Release{Chart: "bigfleet", Name: "eu", Namespace: "fleet", Values: noBoards + "shard: {replicas: 2, " + one + "}\n"})
	mounted := 0
	for _, v := range statefulSets(t, text)["shard"].Spec.Template.Spec.Volumes {
		if v.Projected != nil {
			mounted = len(v.Projected.Sources)
		}
	}
	if mounted != 2 {
		t.Errorf("a Pod mounts the keys of %d shards: the notes are wrong", mounted)
	}
}
