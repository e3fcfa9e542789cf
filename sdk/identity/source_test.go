package identity_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
)

func newCA(t *testing.T, name string) *devca.CA {
	t.Helper()
	ca, err := devca.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func write(t *testing.T, ca *devca.CA, dir string, id identity.ID) identity.Files {
	t.Helper()
	files, err := ca.Write(dir, "tls", devca.For(id))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func load(t *testing.T, files identity.Files, opts identity.Options) *identity.Source {
	t.Helper()
	source, err := identity.Load(files, opts)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// serve accepts TLS connections, completes their handshake and answers one byte. It returns the address.
func serve(t *testing.T, source *identity.Source) string {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", source.ServerConfig("test"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				if conn.(*tls.Conn).Handshake() == nil {
					_, _ = conn.Write([]byte{'x'})
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
	return ln.Addr().String()
}

// try dials once and returns the server's identity, or what either side refused.
func try(t *testing.T, client *identity.Source, addr string, check identity.ServerCheck) (identity.ID, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := client.Dialer(nil, check, "test")(ctx, "tcp", addr)
	if err != nil {
		return identity.ID{}, err
	}
	defer func() { _ = conn.Close() }()
	// Under TLS 1.3 the client learns of the server's refusal with its first read.
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return identity.ID{}, err
	}
	return identity.FromState(conn.(*tls.Conn).ConnectionState())
}

// SHARD-22.1, PROV-2.4: all three files, or none; some is an error that names what is missing.
func TestFilesAllOrNone(t *testing.T) {
	if on, err := (identity.Files{}).Enabled(); on || err != nil {
		t.Errorf("no files: %v, %v", on, err)
	}
	if on, err := (identity.Files{Cert: "a", Key: "b", CA: "c"}).Enabled(); !on || err != nil {
		t.Errorf("all files: %v, %v", on, err)
	}
	for _, test := range []struct {
		files   identity.Files
		missing []string
	}{
		{identity.Files{Cert: "a"}, []string{"--tls-key", "--tls-ca"}},
		{identity.Files{Key: "a"}, []string{"--tls-cert", "--tls-ca"}},
		{identity.Files{CA: "a"}, []string{"--tls-cert", "--tls-key"}},
		{identity.Files{Cert: "a", Key: "b"}, []string{"--tls-ca"}},
	} {
		_, err := test.files.Enabled()
		for _, flag := range test.missing {
			if err == nil || !strings.Contains(err.Error(), "without") || !strings.Contains(strings.SplitN(err.Error(), "without", 2)[1], flag) {
				t.Errorf("%+v: %v does not name %s as missing", test.files, err, flag)
			}
		}
		if _, err := identity.Load(test.files, identity.Options{}); err == nil {
			t.Errorf("%+v loaded", test.files)
		}
	}
	if _, err := identity.Load(identity.Files{}, identity.Options{}); err == nil {
		t.Error("no files loaded")
	}
}

// SHARD-22.3: bad material at start is a start error.
func TestBadMaterialAtStart(t *testing.T) {
	ca := newCA(t, "one")
	for name, spoil := range map[string]func(files identity.Files) error{
		"missing certificate": func(f identity.Files) error { return os.Remove(f.Cert) },
		"missing key":         func(f identity.Files) error { return os.Remove(f.Key) },
		"missing CA":          func(f identity.Files) error { return os.Remove(f.CA) },
		"empty CA":            func(f identity.Files) error { return os.WriteFile(f.CA, nil, 0o600) },
		"key in the CA file": func(f identity.Files) error {
			key, err := os.ReadFile(f.Key)
			return errors.Join(err, os.WriteFile(f.CA, key, 0o600))
		},
		"broken certificate in the CA bundle": func(f identity.Files) error {
			good, err := os.ReadFile(f.CA)
			return errors.Join(err, os.WriteFile(f.CA, append(good, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")...), 0o600))
		},
		"key of another certificate": func(f identity.Files) error {
			_, key, err := ca.Issue(devca.Request{})
			return errors.Join(err, os.WriteFile(f.Key, key, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := write(t, ca, t.TempDir(), identity.ID{Kind: identity.Shard, Name: "a"})
			if err := spoil(files); err != nil {
				t.Fatal(err)
			}
			if _, err := identity.Load(files, identity.Options{}); err == nil {
				t.Error("it loaded")
			}
		})
	}
}

// OPS-8.1: one certificate serves and dials; each side learns the other's identity. TLS 1.3 and nothing older.
func TestMutualIdentity(t *testing.T) {
	ca := newCA(t, "one")
	cluster := identity.ID{Kind: identity.Cluster, Name: "arn:aws:eks:eu/red"}
	server := load(t, write(t, ca, t.TempDir(), identity.ID{Kind: identity.Shard, Name: "a"}), identity.Options{})
	client := load(t, write(t, ca, t.TempDir(), cluster), identity.Options{})
	if id, err := client.ID(); id != cluster || err != nil {
		t.Errorf("own identity %v, %v", id, err)
	}
	addr := serve(t, server)
	got, err := try(t, client, addr, identity.Accept(identity.Shard))
	if err != nil || got != (identity.ID{Kind: identity.Shard, Name: "a"}) {
		t.Errorf("server identity %v, %v", got, err)
	}

	old := &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	if conn, err := tls.Dial("tcp", addr, old); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.2 was accepted")
	}
	// No client certificate.
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"test"}})
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
		_ = conn.Close()
	}
	if err == nil {
		t.Error("a client without certificate was served")
	}
}

// OP-3.7 scenario 7, COORD-6.3.5: with a wrong server SAN the handshake fails, so no frame is sent. The same for a
// foreign CA in both directions, an ended certificate, and a host name that the certificate does not carry.
func TestRefusedServersAndClients(t *testing.T) {
	ca, foreign := newCA(t, "one"), newCA(t, "foreign")
	shard := identity.ID{Kind: identity.Shard, Name: "a"}
	cluster := identity.ID{Kind: identity.Cluster, Name: "red"}
	client := load(t, write(t, ca, t.TempDir(), cluster), identity.Options{})
	serveWith := func(ca *devca.CA, r devca.Request) string {
		files, err := ca.Write(t.TempDir(), "tls", r)
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, load(t, files, identity.Options{}))
	}
	good := serveWith(ca, devca.For(shard))
	noName := devca.For(shard)
	noName.Hosts = []string{"elsewhere.example"}
	ended := devca.For(shard)
	ended.Lifetime = -time.Minute
	for name, test := range map[string]struct {
		addr  string
		check identity.ServerCheck
		want  string
	}{
		"another kind":     {good, identity.Accept(identity.Coordinator, identity.Admin), "bigfleet://shard/a"},
		"another name":     {good, identity.AcceptID(identity.ID{Kind: identity.Shard, Name: "b"}), "bigfleet://shard/b"},
		"no identity":      {serveWith(ca, devca.Request{Hosts: []string{"127.0.0.1"}}), identity.Accept(identity.Shard), "no bigfleet://"},
		"two identities":   {serveWith(ca, devca.Request{URIs: []string{"bigfleet://shard/a", "bigfleet://admin"}, Hosts: []string{"127.0.0.1"}}), identity.Accept(identity.Shard), "several"},
		"foreign CA":       {serveWith(foreign, devca.For(shard)), nil, "unknown authority"},
		"other host name":  {serveWith(ca, noName), nil, "127.0.0.1"},
		"ended":            {serveWith(ca, ended), nil, "expired"},
		"nothing listens ": {"127.0.0.1:1", nil, "refused"},
	} {
		if _, err := try(t, client, test.addr, test.check); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, test.want)
		}
	}
	// A provider needs no identity as a server: chain and host name are enough (WIRE-2.6).
	if _, err := try(t, client, serveWith(ca, devca.Request{Hosts: []string{"127.0.0.1"}}), nil); !errors.Is(err, identity.ErrNone) {
		t.Errorf("a provider without identity was not accepted: %v", err)
	}
	strangerFiles := write(t, foreign, t.TempDir(), cluster)
	bundle := append(ca.PEM(), foreign.PEM()...) // so that the stranger itself accepts the server
	if err := os.WriteFile(strangerFiles.CA, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, load(t, strangerFiles, identity.Options{}), good, nil); err == nil {
		t.Error("a client of a foreign CA was served")
	}
}

// OPS-8.5: the CA's end is that of the root in use, not of a dying one that still stands in the bundle.
func TestExpiry(t *testing.T) {
	ca, other := newCA(t, "one"), newCA(t, "other")
	r := devca.For(identity.ID{Kind: identity.Shard, Name: "a"})
	r.Lifetime = time.Hour
	files, err := ca.Write(t.TempDir(), "tls", r)
	if err != nil {
		t.Fatal(err)
	}
	leaf, root := load(t, files, identity.Options{}).Expiry()
	if d := time.Until(leaf); d < 59*time.Minute || d > time.Hour {
		t.Errorf("leaf ends in %s", d)
	}
	if d := time.Until(root); d < devca.Lifetime-time.Minute || d > devca.Lifetime {
		t.Errorf("root ends in %s", d)
	}
	// The own bundle need not vouch for the own leaf.
	if err := os.WriteFile(files.CA, other.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, root := load(t, files, identity.Options{}).Expiry(); time.Until(root) < devca.Lifetime-time.Minute {
		t.Errorf("root of a foreign bundle ends at %s", root)
	}
}

// A dial that is given up leaves no connection behind.
func TestDialHonoursContext(t *testing.T) {
	ca := newCA(t, "one")
	client := load(t, write(t, ca, t.TempDir(), identity.ID{Kind: identity.Admin}), identity.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel and never answers the handshake
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Dialer(nil, nil)(ctx, "tcp", ln.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's end", err)
	}
}
