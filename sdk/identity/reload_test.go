package identity_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
)

// Scenario 52 of docs/spec/provider.md, PROV-2.5, COORD-14.2, OPS-8.3: leaf and CA are taken into use without restart; the last good set stays while the
// files do not match; each failure is reported once.
func TestReload(t *testing.T) {
	one, two := newCA(t, "one"), newCA(t, "two")
	var mu sync.Mutex
	var reports []identity.Reload
	dir := t.TempDir()
	shard := identity.ID{Kind: identity.Shard, Name: "a"}
	files := write(t, one, dir, shard)
	server := load(t, files, identity.Options{OnReload: func(r identity.Reload) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, r)
	}})
	taken := func() (out []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range reports {
			if r.Err != nil {
				out = append(out, "failed")
			} else {
				out = append(out, r.ID.String())
			}
		}
		reports = nil
		return out
	}
	addr := serve(t, server)
	client := load(t, write(t, one, t.TempDir(), identity.ID{Kind: identity.Cluster, Name: "red"}), identity.Options{})
	mustServe := func(want identity.ID) {
		t.Helper()
		if got, err := try(t, client, addr, nil); err != nil || got != want {
			t.Fatalf("served %v, %v, want %v", got, err, want)
		}
	}
	mustServe(shard)
	if err := server.Check(); err != nil {
		t.Fatal(err)
	}
	if got := taken(); len(got) != 0 {
		t.Errorf("unchanged files were reported: %v", got)
	}

	// A new leaf.
	renewed := identity.ID{Kind: identity.Shard, Name: "a2"}
	write(t, one, dir, renewed)
	if err := server.Check(); err != nil {
		t.Fatal(err)
	}
	mustServe(renewed)
	if got := taken(); len(got) != 1 || got[0] != renewed.String() {
		t.Errorf("reports %v", got)
	}

	// Half of a rotation: certificate and key do not match. The last good set stays, the failure is logged once.
	certPEM, keyPEM, err := one.Issue(devca.For(shard))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.Cert, certPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if server.Check() == nil {
			t.Fatal("a certificate was taken with the key of another")
		}
	}
	mustServe(renewed)
	if got := taken(); len(got) != 1 || got[0] != "failed" {
		t.Errorf("reports %v, want the failure once", got)
	}
	// The other half arrives: it heals by itself.
	if err := os.WriteFile(files.Key, keyPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Check(); err != nil {
		t.Fatal(err)
	}
	mustServe(shard)
	if got := taken(); len(got) != 1 || got[0] != shard.String() {
		t.Errorf("reports %v", got)
	}
	// Files vanish for a moment.
	if err := os.Rename(files.CA, files.CA+".away"); err != nil {
		t.Fatal(err)
	}
	if server.Check() == nil {
		t.Fatal("a missing CA file was no error")
	}
	mustServe(shard)
	if err := os.Rename(files.CA+".away", files.CA); err != nil {
		t.Fatal(err)
	}
	if err := server.Check(); err != nil {
		t.Fatal(err)
	}
	taken()

	// CA rotation: old + new in the bundle, then clients of the new CA are served, then the old root goes.
	newcomer := write(t, two, t.TempDir(), identity.ID{Kind: identity.Cluster, Name: "blue"})
	if err := os.WriteFile(newcomer.CA, append(two.PEM(), one.PEM()...), 0o600); err != nil {
		t.Fatal(err)
	}
	blue := load(t, newcomer, identity.Options{})
	if _, err := try(t, blue, addr, nil); err == nil {
		t.Fatal("a client of a CA that is not in the bundle was served")
	}
	if err := os.WriteFile(files.CA, append(one.PEM(), two.PEM()...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, blue, addr, nil); err != nil {
		t.Fatalf("with both roots in the bundle: %v", err)
	}
	mustServe(shard)
	if err := os.WriteFile(files.CA, two.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, client, addr, nil); err == nil {
		t.Fatal("a client of the dropped root was served")
	}
}

// Kubernetes swaps a symbolic link to a whole directory; a handshake notices within the second of PROV-2.5.
func TestReloadThroughSymlinkOnHandshake(t *testing.T) {
	ca := newCA(t, "one")
	base := t.TempDir()
	version := func(name string) identity.ID {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		id := identity.ID{Kind: identity.Shard, Name: name}
		write(t, ca, dir, id)
		return id
	}
	point := func(name string) {
		next := filepath.Join(base, "next")
		if err := errors.Join(os.Symlink(name, next), os.Rename(next, filepath.Join(base, "data"))); err != nil {
			t.Fatal(err)
		}
	}
	version("v1")
	point("v1")
	in := func(name string) string { return filepath.Join(base, "data", name) }
	source := load(t, identity.Files{Cert: in("tls.crt"), Key: in("tls.key"), CA: in("ca.crt")}, identity.Options{})
	addr := serve(t, source)
	client := load(t, write(t, ca, t.TempDir(), identity.ID{Kind: identity.Admin}), identity.Options{})
	want := version("v2")
	point("v2")
	deadline := time.Now().Add(30 * time.Second)
	for {
		got, err := try(t, client, addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("handshakes still show %v", got)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Settled files are recognised by their stamp: an unchanged set is not read again, and one that was written again
// within a tick of the file system's clock is not overlooked.
func TestYoungFilesAreReadAgain(t *testing.T) {
	ca := newCA(t, "one")
	dir := t.TempDir()
	files := write(t, ca, dir, identity.ID{Kind: identity.Shard, Name: "a"})
	stamp := time.Now().Add(-time.Hour)
	age := func() {
		for _, path := range []string{files.Cert, files.Key, files.CA} {
			if err := os.Chtimes(path, stamp, stamp); err != nil {
				t.Fatal(err)
			}
		}
	}
	age()
	source := load(t, files, identity.Options{})
	if err := source.Check(); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(files.Cert)
	// The same file, same size and same time, other bytes: only a young file is expected to be noticed.
	stamp = time.Now()
	certPEM, keyPEM, err := ca.Issue(devca.For(identity.ID{Kind: identity.Shard, Name: "b"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(files.Cert, certPEM, 0o600), os.WriteFile(files.Key, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	age()
	if err := source.Check(); err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err = ca.Issue(devca.For(identity.ID{Kind: identity.Shard, Name: "c"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(files.Cert, certPEM, 0o600), os.WriteFile(files.Key, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	age()
	if err := source.Check(); err != nil {
		t.Fatal(err)
	}
	if id, _ := source.ID(); id.Name != "c" {
		t.Errorf("the second write within the tick was overlooked: %v (file was %v)", id, before.ModTime())
	}
}

// A server behind one Source is asked by many at once while files change: run with -race.
func TestConcurrentReload(t *testing.T) {
	ca := newCA(t, "one")
	dir := t.TempDir()
	source := load(t, write(t, ca, dir, identity.ID{Kind: identity.Shard, Name: "a"}), identity.Options{OnReload: func(identity.Reload) {}})
	addr := serve(t, source)
	client := load(t, write(t, ca, t.TempDir(), identity.ID{Kind: identity.Admin}), identity.Options{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				if _, err := try(t, client, addr, identity.Accept(identity.Shard)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		for range 10 {
			if _, err := ca.Write(dir, "tls", devca.For(identity.ID{Kind: identity.Shard, Name: "b"})); err != nil {
				t.Error(err)
			}
			_ = source.Check()
		}
	})
	all.Wait()
}
