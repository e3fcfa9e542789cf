// Package devca makes throw-away certificates: one certificate authority in memory and one certificate per identity.
//
// It serves tests and `bigfleet certs dev`. Everything it makes ends soon, is signed by a key that was never
// protected, and says "not for production" in its subject. It must never be linked into a path that issues
// certificates for a real fleet: those come from the owner's CA (docs/spec/operations.md section 8).
//
// Start at New, then CA.Issue or CA.Write.
package devca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

const (
	// Lifetime of a leaf unless Request.Lifetime says otherwise, and of the CA.
	Lifetime = 30 * 24 * time.Hour
	// backdate makes new certificates valid for peers whose clock is a little behind.
	backdate = time.Hour
)

// CA is a certificate authority whose key lives in memory.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes a CA. name goes into its subject, which distinguishes two of them.
func New(name string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"not for production"}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(Lifetime), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	return &CA{cert: cert, key: key}, nil
}

// Request says what a certificate carries.
type Request struct {
	// URIs are the URI SANs as they shall stand in the certificate. IDs of package identity give theirs with String.
	// Several or none make a certificate that servers must refuse, which tests need.
	URIs []string
	// Hosts are DNS names and IP addresses that the holder serves under.
	Hosts []string
	// Lifetime of the certificate; 0 means Lifetime. Negative makes one that has ended.
	Lifetime time.Duration
}

// For is the Request of one identity that also serves on loopback.
func For(id identity.ID, hosts ...string) Request {
	return Request{URIs: []string{id.String()}, Hosts: append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)}
}

// Issue signs one certificate and returns it and its key as PEM. It may both serve and dial (OPS-8.1).
func (ca *CA) Issue(r Request) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	lifetime := r.Lifetime
	if lifetime == 0 {
		lifetime = Lifetime
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"not for production"}},
		NotBefore: now.Add(-backdate).Add(min(lifetime, 0)), NotAfter: now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, text := range r.URIs {
		uri, err := url.Parse(text)
		if err != nil {
			return nil, nil, fmt.Errorf("URI SAN %q: %w", text, err)
		}
		template.URIs = append(template.URIs, uri)
	}
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// PEM returns the CA's own certificate, for CA bundles.
func (ca *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// Write issues a certificate and puts <name>.crt, <name>.key and ca.crt into dir, which must exist. Each file is
// replaced in one step, and the key is readable by its owner only.
func (ca *CA) Write(dir, name string, r Request) (identity.Files, error) {
	certPEM, keyPEM, err := ca.Issue(r)
	if err != nil {
		return identity.Files{}, err
	}
	files := identity.Files{
		Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.crt"),
	}
	err = errors.Join(replace(files.Key, keyPEM, 0o600), replace(files.Cert, certPEM, 0o644), replace(files.CA, ca.PEM(), 0o644))
	return files, err
}

// replace writes path through a temporary file and a rename, so that a reader sees the old bytes or the new ones.
func replace(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}
