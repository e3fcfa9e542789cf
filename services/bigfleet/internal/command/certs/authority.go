package certs

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
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

const (
	// authorityLifetime is long: a new authority must be trusted by every process before one uses it.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// leafLifetime leaves a month in which renewal may fail.
	leafLifetime = 90 * 24 * time.Hour
	renewBefore  = leafLifetime / 3
	// backdate makes new certificates valid for peers whose clock is a little behind.
	backdate = time.Hour
)

// wanted is one certificate: what it proves and where its holder serves.
type wanted struct {
	secret string
	uri    string // "" for a server whose callers check its name alone
	hosts  []string
}

// parseWanted reads SECRET=IDENTITY[,HOST...]; the identity "server" is none.
func parseWanted(text string) (wanted, error) {
	name, rest, ok := strings.Cut(text, "=")
	parts := strings.Split(rest, ",")
	if !ok || name == "" || parts[0] == "" || slices.Contains(parts, "") {
		return wanted{}, fmt.Errorf("--secret %q: want SECRET=IDENTITY[,HOST...]", text)
	}
	w := wanted{secret: name, hosts: parts[1:]}
	if parts[0] == "server" {
		if len(w.hosts) == 0 {
			return wanted{}, fmt.Errorf("--secret %q: a server without an identity needs a host", text)
		}
		return w, nil
	}
	id, err := identity.Parse("bigfleet://" + parts[0])
	if err != nil {
		return wanted{}, fmt.Errorf("--secret %q: %w", text, err)
	}
	w.uri = id.String()
	return w, nil
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes one, and the data of its Secret.
func newAuthority(name string, now time.Time) (map[string][]byte, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(template, nil)
}

// readAuthority reads a Secret that newAuthority or cert-manager made.
func readAuthority(data map[string][]byte, now time.Time) (*authority, error) {
	cert, err := parseCertificate(data["tls.crt"])
	if err != nil {
		return nil, fmt.Errorf("tls.crt: %w", err)
	}
	block, _ := pem.Decode(data["tls.key"])
	if block == nil {
		return nil, errors.New("tls.key is not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("tls.key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) || !cert.IsCA {
		return nil, errors.New("tls.crt and tls.key are not the certificate and the ECDSA key of one CA")
	}
	if cert.NotAfter.Sub(now) < leafLifetime {
		return nil, fmt.Errorf("the CA certificate expires at %s, before a certificate that it would sign now; replace it as docs/runbook.md describes", cert.NotAfter.Format(time.RFC3339))
	}
	return &authority{cert, key}, nil
}

// issue makes a certificate, as the data of its Secret.
func (a *authority) issue(w wanted, now time.Time) (map[string][]byte, error) {
	template := &x509.Certificate{
		NotBefore: now.Add(-backdate), NotAfter: now.Add(leafLifetime), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if w.uri != "" {
		uri, err := url.Parse(w.uri)
		if err != nil {
			return nil, err
		}
		template.URIs = []*url.URL{uri}
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	template.DNSNames, template.IPAddresses = split(w.hosts)
	return sign(template, a)
}

// good tells whether the certificate of a Secret is still the one that is wanted.
func (a *authority) good(data map[string][]byte, w wanted, now time.Time) bool {
	cert, err := parseCertificate(data["tls.crt"])
	if err != nil || len(data["tls.key"]) == 0 || cert.CheckSignatureFrom(a.cert) != nil || cert.NotAfter.Sub(now) < renewBefore {
		return false
	}
	var uris []string
	for _, u := range cert.URIs {
		uris = append(uris, u.String())
	}
	if w.uri != "" && !slices.Equal(uris, []string{w.uri}) || w.uri == "" && len(uris) > 0 {
		return false
	}
	names, addresses := split(w.hosts)
	return slices.Equal(cert.DNSNames, names) && slices.EqualFunc(cert.IPAddresses, addresses, net.IP.Equal)
}

func split(hosts []string) (names []string, addresses []net.IP) {
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			addresses = append(addresses, ip)
		} else {
			names = append(names, host)
		}
	}
	return names, addresses
}

// sign makes a key and a certificate of it; without an authority the certificate signs itself.
func sign(template *x509.Certificate, by *authority) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	trusted := cert
	if by != nil {
		trusted = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: by.cert.Raw})
	}
	return map[string][]byte{"tls.crt": cert, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), "ca.crt": trusted}, nil
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}
