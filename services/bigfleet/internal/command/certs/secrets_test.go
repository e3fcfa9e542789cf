package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// held is a namespace's Secrets.
type held map[string]*corev1.Secret

func (h held) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	if s := h[name]; s != nil {
		return s.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (h held) Create(_ context.Context, s *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	if h[s.Name] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, s.Name)
	}
	h[s.Name] = s.DeepCopy()
	return s, nil
}

func (h held) Update(_ context.Context, s *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	h[s.Name] = s.DeepCopy()
	return s, nil
}

// OPS-8.1, OPS-8.4: a first run makes an authority and certificates that it signed; a second changes nothing; near the end, and when the
// names change, the certificate is replaced and the authority stays; what somebody brought is never touched.
func TestCertificatesAreMadeAndRenewed(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	api := held{"brought": {ObjectMeta: metav1.ObjectMeta{Name: "brought"}, Data: map[string][]byte{"tls.crt": []byte("theirs")}}}
	round := func(now time.Time, texts ...string) string {
		t.Helper()
		var all []wanted
		for _, text := range texts {
			w, err := parseWanted(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		var out bytes.Buffer
		if err := ensure(t.Context(), &out, api, "ca", all, now); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	wants := []string{"shard-0=shard/shard-0,shard-0.fleet.svc,127.0.0.1", "cloud=server,cloud.fleet.svc", "brought=admin"}
	if got := round(now, wants...); got != "ca  a new authority\nshard-0  new\ncloud  new\nbrought  left unchanged: this command did not create it\n" {
		t.Fatal(got)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(api["ca"].Data["tls.crt"])
	leaf, err := parseCertificate(api["shard-0"].Data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "shard-0.fleet.svc", CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Error(err)
		}
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "bigfleet://shard/shard-0" || leaf.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("names %v, %v, %v", leaf.URIs, leaf.DNSNames, leaf.IPAddresses)
	}
	server, err := parseCertificate(api["cloud"].Data["tls.crt"])
	if err != nil || len(server.URIs) != 0 || len(server.ExtKeyUsage) != 1 {
		t.Errorf("a provider's certificate says %v, %v, %v", server.URIs, server.ExtKeyUsage, err)
	}
	before := maps.Clone(api)
	if got := round(now.Add(59*24*time.Hour), wants...); strings.Count(got, "good") != 2 || !maps.Equal(before, api) {
		t.Errorf("a second run: %s", got)
	}
	if got := round(now.Add(61*24*time.Hour), wants...); strings.Count(got, "renewed") != 2 || api["ca"] != before["ca"] || api["brought"] != before["brought"] {
		t.Errorf("near the end: %s", got)
	}
	if got := round(now.Add(61*24*time.Hour), "shard-0=shard/shard-0,other.svc"); got != "shard-0  renewed\n" {
		t.Errorf("other names: %s", got)
	}
	if err := ensure(t.Context(), &bytes.Buffer{}, api, "ca", nil, now.Add(authorityLifetime)); err == nil || !strings.Contains(err.Error(), "the CA certificate expires at") {
		t.Errorf("an authority at its end: %v", err)
	}
	if err := ensure(t.Context(), &bytes.Buffer{}, api, "brought", nil, now); err == nil || !strings.Contains(err.Error(), "Secret brought") {
		t.Errorf("an authority that is none: %v", err)
	}
}

func TestWhatIsNoCertificateIsRefused(t *testing.T) {
	for _, text := range []string{"", "x", "x=", "=admin", "x=wizard", "x=admin,", "x=server", "x=cluster/"} {
		if w, err := parseWanted(text); err == nil {
			t.Errorf("%q is %+v", text, w)
		}
	}
}
