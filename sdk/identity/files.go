package identity

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Files names the PEM files of a process: its leaf certificate (with intermediates, leaf first), the leaf's private
// key, and the bundle of CA certificates that it trusts, as server and as client alike.
type Files struct {
	Cert, Key, CA string
}

// Enabled reports whether TLS is on: all three files are named. None is plaintext. Some is an error that names what
// is missing by flag (SHARD-22.1, COORD-14.1, PROV-2.4).
func (f Files) Enabled() (bool, error) {
	var given, missing []string
	for _, file := range []struct{ flag, path string }{{"--tls-cert", f.Cert}, {"--tls-key", f.Key}, {"--tls-ca", f.CA}} {
		if file.path == "" {
			missing = append(missing, file.flag)
		} else {
			given = append(given, file.flag)
		}
	}
	if len(given) > 0 && len(missing) > 0 {
		return false, fmt.Errorf("%s is given without %s: give all three of --tls-cert, --tls-key and --tls-ca for TLS, or none of them",
			strings.Join(given, " and "), strings.Join(missing, " and "))
	}
	return len(missing) == 0, nil
}

// material is one set of files that loaded and matched.
type material struct {
	leaf  tls.Certificate
	roots *x509.CertPool
	id    ID
	idErr error
	// When the leaf and the root that vouches for it end.
	leafNotAfter, caNotAfter time.Time
}

// read loads all three files as one set. An error names the file and never holds key bytes.
func (f Files) read() (*material, error) {
	certPEM, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	caPEM, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the CA bundle: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s: %w", f.Cert, f.Key, err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", f.Cert, err)
	}
	pair.Leaf = leaf
	authorities, err := parseBundle(caPEM)
	if err != nil {
		return nil, fmt.Errorf("CA bundle %s: %w", f.CA, err)
	}
	m := &material{leaf: pair, roots: x509.NewCertPool(), leafNotAfter: leaf.NotAfter}
	for _, authority := range authorities {
		m.roots.AddCert(authority)
	}
	m.id, m.idErr = FromCertificate(leaf)
	m.caNotAfter = rootNotAfter(pair, authorities)
	return m, nil
}

// parseBundle reads every certificate of a PEM bundle. x509.CertPool.AppendCertsFromPEM skips what it cannot read;
// a bundle with one broken root must be an error instead, or a CA rotation could lose its new root in silence.
func parseBundle(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("has a %q block; only certificates are allowed there", block.Type)
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out = append(out, authority)
	}
	if len(out) == 0 {
		return nil, errors.New("has no certificate")
	}
	return out, nil
}

// rootNotAfter says when the trust in the own leaf ends through its CA: the latest end over the chains from the leaf
// to the bundle, each chain ending with its shortest member. While two roots overlap in a rotation, the dying one
// does not count unless it is the one in use. A leaf that the own bundle does not vouch for (peers may trust another
// CA) yields the earliest end in the bundle.
func rootNotAfter(pair tls.Certificate, authorities []*x509.Certificate) time.Time {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	earliest := authorities[0].NotAfter
	for _, authority := range authorities {
		roots.AddCert(authority)
		if authority.NotAfter.Before(earliest) {
			earliest = authority.NotAfter
		}
	}
	for _, raw := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(raw); err == nil {
			between.AddCert(c)
		}
	}
	chains, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		CurrentTime: pair.Leaf.NotBefore.Add(pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore) / 2),
	})
	if err != nil {
		return earliest
	}
	var latest time.Time
	for _, chain := range chains {
		end := chain[len(chain)-1].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(latest) {
			latest = end
		}
	}
	return latest
}
