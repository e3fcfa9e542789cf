package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// reloadEvery bounds how often handshakes look at the files (PROV-2.5).
	reloadEvery = time.Second
	// racyWithin is how young a file may be for its stamp to be trusted. File systems stamp in ticks of up to 2 s
	// (FAT), so a file that was written again within the tick looks unchanged; younger files are read again.
	racyWithin = 2 * time.Second
)

// Reload is one attempt to take changed files into use.
type Reload struct {
	// Err is nil when the new set is in force; otherwise the last good set stays and Err says why.
	Err error
	// ID is the identity of the set that is in force now.
	ID ID
	// NotAfter is when the leaf that is in force now ends.
	NotAfter time.Time
}

// Options of Load. The zero value is fine.
type Options struct {
	// OnReload hears of each reload that took place and of each failed one, once per distinct failure and not at each
	// handshake. It runs on the goroutine of a handshake and must not block.
	OnReload func(Reload)
}

// Source serves the current certificate, key and CA bundle from Files and notices when they change.
type Source struct {
	files Files
	opts  Options

	mu      sync.Mutex
	current *material
	stamp   stamp     // of the files that gave current
	looked  time.Time // when the files were last looked at
	lastErr string    // of the failing set, to report each failure once
}

// Load reads the files once and returns a Source. Bad material at start is an error (SHARD-22.3): a certificate
// without exactly one identity is not, because providers need none (WIRE-2.6); ask ID for it.
func Load(files Files, opts Options) (*Source, error) {
	on, err := files.Enabled()
	if err != nil {
		return nil, err
	}
	if !on {
		return nil, errors.New("no TLS files: --tls-cert, --tls-key and --tls-ca are empty")
	}
	s := &Source{files: files, opts: opts}
	now := time.Now()
	stamp, err := files.stamp(now)
	if err != nil {
		return nil, err
	}
	m, err := files.read()
	if err != nil {
		return nil, err
	}
	s.current, s.stamp, s.looked = m, stamp, now
	return s, nil
}

// ID returns the identity of the own certificate in force, or why it has none.
func (s *Source) ID() (ID, error) {
	m := s.material()
	return m.id, m.idErr
}

// Expiry says when the own leaf ends and when the CA that vouches for it ends.
func (s *Source) Expiry() (leaf, ca time.Time) {
	m := s.material()
	return m.leafNotAfter, m.caNotAfter
}

// Check looks at the files now, whenever they were last looked at, and returns why a changed set is not in force.
// Handshakes do this by themselves; Check is for processes that want to know without one.
func (s *Source) Check() error {
	s.mu.Lock()
	report, err := s.reload(time.Now())
	s.mu.Unlock()
	s.tell(report)
	return err
}

// ServerConfig returns the configuration of a listener: TLS 1.3, client certificates required and verified against
// the CA bundle in force at each handshake. It does not look at identities: a server refuses those with an RPC code.
// Session tickets are off, so that every connection shows its certificate to the current bundle. next are the ALPN
// protocols, by default h2 and http/1.1.
func (s *Source) ServerConfig(next ...string) *tls.Config {
	if len(next) == 0 {
		next = []string{"h2", "http/1.1"}
	}
	base := &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: next, SessionTicketsDisabled: true,
	}
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := s.material()
		config := base.Clone()
		config.Certificates, config.ClientCAs = []tls.Certificate{m.leaf}, m.roots
		return config, nil
	}
	// Never reached after GetConfigForClient, but without it tls.NewListener and http.Server refuse the configuration.
	outer.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.material().leaf, nil }
	return outer
}

// ServerCheck judges the identity of a server before the first byte is sent to it. A nil ServerCheck accepts any
// server whose chain and host name are right.
type ServerCheck func(ID) error

// Accept returns a ServerCheck that wants one of the kinds.
func Accept(kinds ...Kind) ServerCheck {
	return func(id ID) error {
		for _, kind := range kinds {
			if id.Kind == kind {
				return nil
			}
		}
		return fmt.Errorf("the server is %s, expected one of %v", id, kinds)
	}
}

// AcceptID returns a ServerCheck that wants exactly want.
func AcceptID(want ID) ServerCheck {
	return func(id ID) error {
		if id != want {
			return fmt.Errorf("the server is %s, expected %s", id, want)
		}
		return nil
	}
}

// ClientConfig returns the configuration of one connection to host: TLS 1.3, the own certificate, the server's chain
// and host name verified against the bundle in force now, then check. Make a new one for each dial, as Dialer does;
// a kept one keeps its CA bundle. next are the ALPN protocols, by default h2.
func (s *Source) ClientConfig(host string, check ServerCheck, next ...string) *tls.Config {
	if len(next) == 0 {
		next = []string{"h2"}
	}
	m := s.material()
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, NextProtos: next, RootCAs: m.roots,
		// Not Certificates: with those, crypto/tls sends none at all when the server's list of CAs does not name the
		// issuer, and the server's refusal then hides the reason.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.leaf, nil },
	}
	if check != nil {
		config.VerifyConnection = func(state tls.ConnectionState) error {
			id, err := FromState(state)
			if err != nil {
				return fmt.Errorf("server identity: %w", err)
			}
			return check(id)
		}
	}
	return config
}

// Dialer returns a dial function for http.Transport.DialTLSContext and for plain TLS users. It dials with dial (nil
// means a net.Dialer with its defaults), completes the handshake within ctx, and returns a *tls.Conn.
func (s *Source) Dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error), check ServerCheck, next ...string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, s.ClientConfig(host, check, next...))
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("TLS with %s: %w", addr, err)
		}
		return conn, nil
	}
}

// material returns the set in force, after a look at the files if the last one is old enough.
func (s *Source) material() *material {
	s.mu.Lock()
	now := time.Now()
	var report *Reload
	if now.Sub(s.looked) >= reloadEvery || now.Before(s.looked) {
		report, _ = s.reload(now)
	}
	m := s.current
	s.mu.Unlock()
	s.tell(report)
	return m
}

// tell reports outside the lock, so that OnReload may ask the Source.
func (s *Source) tell(report *Reload) {
	if report != nil && s.opts.OnReload != nil {
		s.opts.OnReload(*report)
	}
}

// reload takes changed files into use. A failing set is read again at each look, because a rotation that replaces
// the files one after the other heals by itself; it is reported once per distinct failure.
func (s *Source) reload(now time.Time) (*Reload, error) {
	s.looked = now
	stamp, err := s.files.stamp(now)
	if err == nil && stamp.same(s.stamp) {
		s.lastErr = ""
		return nil, nil
	}
	var m *material
	if err == nil {
		m, err = s.files.read()
	}
	if err != nil {
		if err.Error() == s.lastErr {
			return nil, err
		}
		s.lastErr = err.Error()
		return &Reload{Err: err, ID: s.current.id, NotAfter: s.current.leafNotAfter}, err
	}
	changed := s.lastErr != "" || !m.equal(s.current)
	s.current, s.stamp, s.lastErr = m, stamp, ""
	if !changed {
		return nil, nil
	}
	return &Reload{ID: m.id, NotAfter: m.leafNotAfter}, nil
}

func (m *material) equal(o *material) bool {
	if len(m.leaf.Certificate) != len(o.leaf.Certificate) || !m.roots.Equal(o.roots) {
		return false
	}
	for i, raw := range m.leaf.Certificate {
		if string(raw) != string(o.leaf.Certificate[i]) {
			return false
		}
	}
	return true
}

// stamp tells one state of the files from another without reading them.
type stamp struct {
	infos [3]os.FileInfo
	racy  bool // one file is so young that its time says nothing yet
}

// stamp follows symbolic links, so a Kubernetes Secret volume, which swaps one link, shows new files.
func (f Files) stamp(now time.Time) (stamp, error) {
	var out stamp
	for i, path := range []string{f.Cert, f.Key, f.CA} {
		info, err := os.Stat(path)
		if err != nil {
			return stamp{}, fmt.Errorf("checking the TLS files: %w", err)
		}
		out.infos[i] = info
		if now.Sub(info.ModTime()) < racyWithin {
			out.racy = true
		}
	}
	return out, nil
}

func (s stamp) same(o stamp) bool {
	if s.racy || o.racy {
		return false
	}
	for i, info := range s.infos {
		if !os.SameFile(info, o.infos[i]) || info.Size() != o.infos[i].Size() || !info.ModTime().Equal(o.infos[i].ModTime()) {
			return false
		}
	}
	return true
}
