package certs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
)

// issued writes a new certificate of shard/shard-0 as a Secret's files.
func issued(t *testing.T, dir string) {
	t.Helper()
	ca, err := devca.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(devca.For(identity.ID{Kind: identity.Shard, Name: "shard-0"}))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// OPS-8.3, OPS-8.4: nothing is copied until a whole set is there; then a process reads it, and a renewed one without a restart. A key that does not belong to
// the certificate never replaces one that does.
func TestFollowedCertificateIsRenewedWithoutARestart(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "shard-0")
	var said []string
	f := follower{from: from, to: to, say: func(text string) { said = append(said, text) }}
	ended, stop := context.WithCancel(t.Context())
	stop()
	look := func() {
		t.Helper()
		if err := f.run(ended, false, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	look()
	look()
	if names, err := os.ReadDir(to); err != nil || len(names) != 0 || len(said) != 1 || !strings.HasPrefix(said[0], "waiting for ") {
		t.Fatalf("of nothing %v was copied, %v; said: %q", names, err, said)
	}

	issued(t, from)
	if err := f.run(t.Context(), true, time.Hour); err != nil {
		t.Fatal(err)
	}
	source, err := identity.Load(identity.Files{Cert: filepath.Join(to, "tls.crt"), Key: filepath.Join(to, "tls.key"), CA: filepath.Join(to, "ca.crt")}, identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := source.ID(); err != nil || id.String() != "bigfleet://shard/shard-0" {
		t.Fatalf("it proves %s, %v", id, err)
	}
	if info, err := os.Stat(filepath.Join(to, "tls.key")); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("who may read the key: %v, %v", info.Mode(), err)
	}

	in := func(dir, name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := in(to, "tls.crt")
	issued(t, from)
	if err := os.WriteFile(filepath.Join(from, "tls.key"), []byte(in(to, "tls.key")), 0o600); err != nil { // that of the certificate before
		t.Fatal(err)
	}
	look()
	if in(to, "tls.crt") != before || !strings.HasPrefix(said[len(said)-1], "not copied: ") {
		t.Errorf("a certificate without its key was copied; said: %q", said)
	}
	issued(t, from)
	look()
	if in(to, "tls.crt") != in(from, "tls.crt") || in(to, "tls.crt") == before {
		t.Error("a renewed certificate was not copied")
	}
	if err := source.Check(); err != nil {
		t.Errorf("the process that reads it: %v", err)
	}
	names, err := os.ReadDir(to)
	if err != nil || len(names) != 3 {
		t.Errorf("the directory has %v, %v", names, err)
	}
}
