package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
)

const dialTimeout = 3 * time.Second

// endpoint dials an address as a client would and says what is wrong with the way there: DNS, port, certificate.
// want is what the server should present; "" means that its identity does not matter. It reports whether calls can work.
func endpoint(ctx context.Context, a *app.App, r *report, about, address string, want identity.Kind) bool {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		r.fail(about, "Fix the name or the DNS record; --coordinator and --shard take host:port", "the name %q does not resolve: %v", dns.Name, dns)
		return false
	case err != nil:
		r.fail(about, "Start the process, or open the port in the firewall and the NetworkPolicy", "nothing answers at %s: %v", address, err)
		return false
	}
	files := a.TLSFiles()
	if files == (identity.Files{}) {
		defer func() { _ = conn.Close() }()
		if wantsTLS(ctx, conn) {
			r.fail(about, "Give this command --tls-cert, --tls-key and --tls-ca, or a --context that has them", "%s serves TLS and this command was given no certificate", address)
			return false
		}
		r.warn(about, "Plaintext is for trials: give the process --tls-cert, --tls-key and --tls-ca, and this command too", "it answers without TLS")
		return true
	}
	defer func() { _ = conn.Close() }()
	return handshake(ctx, a, r, about, address, conn, files, want)
}

// wantsTLS tries a handshake without a certificate: a server that serves TLS shows its own before it asks for one.
func wantsTLS(ctx context.Context, conn net.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	client := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) //nolint:gosec // nothing is sent over this connection
	return client.HandshakeContext(ctx) == nil
}

// handshake takes any certificate and then judges it, so that the finding can say what is wrong and not only that something is.
func handshake(ctx context.Context, a *app.App, r *report, about, address string, conn net.Conn, files identity.Files, want identity.Kind) bool {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		r.fail(about, "Point --tls-cert and --tls-key at a pair that belongs together", "your certificate cannot be loaded: %v", err)
		return false
	}
	if !valid(a, r, "own certificate", pair.Leaf) {
		return false
	}
	host, _, _ := net.SplitHostPort(address)
	client := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ServerName: host,
		InsecureSkipVerify: true, //nolint:gosec // judged below; nothing is sent over this connection
	})
	if err := client.HandshakeContext(ctx); err != nil {
		r.fail(about, "Check that the server runs with TLS and trusts the CA of your certificate", "the TLS handshake with %s fails: %v", address, err)
		return false
	}
	leaf := client.ConnectionState().PeerCertificates[0]
	if !valid(a, r, about, leaf) || !trusted(a, r, about, host, files, client.ConnectionState()) {
		return false
	}
	id, err := identity.FromCertificate(leaf)
	if want != "" && (err != nil || id.Kind != want) {
		r.fail(about, "Issue a certificate with exactly one URI SAN bigfleet://"+string(want)+"/<id>", "%s presents %q, which is not a %s identity", address, id, want)
		return false
	}
	r.ok(about, "%s answers over TLS until %s", address, leaf.NotAfter.UTC().Format(time.RFC3339))
	return true
}

// valid judges the time of a certificate.
func valid(a *app.App, r *report, about string, leaf *x509.Certificate) bool {
	switch left := leaf.NotAfter.Sub(a.Now()); {
	case left <= 0:
		r.fail(about, "Renew it; running processes load the new files automatically", "the certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
		return false
	case a.Now().Before(leaf.NotBefore):
		r.fail(about, "Check the clocks of the machine and of the CA", "the certificate is valid only from %s", leaf.NotBefore.UTC().Format(time.RFC3339))
		return false
	case left < expiryWarn:
		r.warn(about, "Renew it; running processes load the new files automatically", "the certificate expires in %.0f hours", left.Hours())
	}
	return true
}

// trusted judges chain and names.
func trusted(a *app.App, r *report, about, host string, files identity.Files, state tls.ConnectionState) bool {
	bundle, err := os.ReadFile(files.CA)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(bundle) {
		r.fail(about, "Point --tls-ca at a PEM file with the CA", "the CA file %s holds no certificate", files.CA)
		return false
	}
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: a.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		r.fail(about, "Give every process the same CA bundle, old and new during a change", "the certificate is not signed by the CA in %s: %v", files.CA, err)
		return false
	}
	if err := leaf.VerifyHostname(host); err != nil {
		r.fail(about, "Issue a certificate that names the host clients dial, or dial a name it has", "the certificate does not name %q: it names %v %v", host, leaf.DNSNames, leaf.IPAddresses)
		return false
	}
	return true
}
