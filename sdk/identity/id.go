package identity

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
)

// Kind is the first part of an identity: what the process is.
type Kind string

// The kinds of WIRE-2.5. ReadOnly and Admin carry no name.
const (
	Cluster     Kind = "cluster"
	Shard       Kind = "shard"
	Coordinator Kind = "coordinator"
	Host        Kind = "host" // the agent of one host of a provider
	ReadOnly    Kind = "readonly"
	Admin       Kind = "admin"
)

const scheme = "bigfleet://"

// Longest names, in bytes (WIRE-2.7).
const (
	clusterNameMax = 253
	otherNameMax   = 128
)

var (
	// ErrNone means that a certificate carries no bigfleet:// URI SAN.
	ErrNone = errors.New("the certificate has no bigfleet:// URI SAN")
	// ErrSeveral means that a certificate carries more than one bigfleet:// URI SAN, so its owner is ambiguous.
	ErrSeveral = errors.New("the certificate has several bigfleet:// URI SANs; exactly one is allowed")
	// ErrForm means that a bigfleet:// URI is not one of the forms of WIRE-2.5.
	ErrForm = errors.New("not a BigFleet identity")
	// ErrNoCertificate means that the peer presented no certificate.
	ErrNoCertificate = errors.New("the peer presented no certificate")
)

// ID is one identity. The zero ID is no identity. IDs are compared with ==, which compares byte for byte.
type ID struct {
	Kind Kind
	Name string // empty for ReadOnly and Admin
}

// String returns the URI, for example bigfleet://shard/shard-0, or "" for the zero ID.
func (id ID) String() string {
	switch {
	case id.Kind == "":
		return ""
	case id.Name == "":
		return scheme + string(id.Kind)
	default:
		return scheme + string(id.Kind) + "/" + id.Name
	}
}

// IsZero reports whether id is no identity.
func (id ID) IsZero() bool { return id == ID{} }

// Check reports whether id has a form that Parse would accept.
func (id ID) Check() error {
	got, err := Parse(id.String())
	if err != nil {
		return err
	}
	if got != id {
		return fmt.Errorf("%w: %q", ErrForm, id.String())
	}
	return nil
}

// Parse reads one identity URI. Nothing is unescaped: a cluster id stands in the URI as it is, slashes included
// (WIRE-2.7). Anything but the forms of WIRE-2.5 is ErrForm.
func Parse(uri string) (ID, error) {
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return ID{}, fmt.Errorf("%w: %q does not start with %s", ErrForm, uri, scheme)
	}
	kind, name, named := strings.Cut(rest, "/")
	id := ID{Kind: Kind(kind), Name: name}
	switch id.Kind {
	case ReadOnly, Admin:
		if named {
			return ID{}, fmt.Errorf("%w: %q: %s has no name", ErrForm, uri, kind)
		}
	case Cluster:
		if !isClusterName(name) {
			return ID{}, fmt.Errorf("%w: %q: the cluster id must be 1 to %d of A-Z a-z 0-9 . _ : / @ - and start with a letter or digit", ErrForm, uri, clusterNameMax)
		}
	case Shard, Coordinator, Host:
		if !isName(name) {
			return ID{}, fmt.Errorf("%w: %q: the name must be 1 to %d of A-Z a-z 0-9 . _ -", ErrForm, uri, otherNameMax)
		}
	default:
		return ID{}, fmt.Errorf("%w: %q: unknown kind %q", ErrForm, uri, kind)
	}
	return id, nil
}

func isName(s string) bool {
	if len(s) < 1 || len(s) > otherNameMax {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("._-", s[i]) < 0 {
			return false
		}
	}
	return true
}

func isClusterName(s string) bool {
	if len(s) < 1 || len(s) > clusterNameMax || !isAlphanumeric(s[0]) {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("._:/@-", s[i]) < 0 {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// FromCertificate returns the identity of a leaf certificate: its single bigfleet:// URI SAN. URIs of other schemes
// may stand beside it and are ignored.
func FromCertificate(leaf *x509.Certificate) (ID, error) {
	uris, err := uriNames(leaf)
	if err != nil {
		return ID{}, err
	}
	found := ""
	for _, uri := range uris {
		// The scheme of a URI has no case, so BIGFLEET:// counts as a second identity here; Parse then refuses it.
		if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
			continue
		}
		if found != "" {
			return ID{}, ErrSeveral
		}
		found = uri
	}
	if found == "" {
		return ID{}, ErrNone
	}
	return Parse(found)
}

// FromState returns the identity of the other end of a TLS connection whose handshake is complete.
func FromState(state tls.ConnectionState) (ID, error) {
	if len(state.PeerCertificates) == 0 {
		return ID{}, ErrNoCertificate
	}
	return FromCertificate(state.PeerCertificates[0])
}

var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

const uriNameTag = 6 // GeneralName ::= CHOICE { ... uniformResourceIdentifier [6] IA5String ... }, RFC 5280 4.2.1.6

// uriNames returns the URI SANs as they stand in the certificate. x509.Certificate.URIs is not used, because
// url.Parse changes what it reads (it lowers the scheme), and identities are compared byte for byte.
func uriNames(leaf *x509.Certificate) ([]string, error) {
	var out []string
	for _, ext := range leaf.Extensions {
		if !ext.Id.Equal(subjectAltName) {
			continue
		}
		var names []asn1.RawValue
		rest, err := asn1.Unmarshal(ext.Value, &names)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate's SANs: %w", err)
		}
		if len(rest) != 0 {
			return nil, errors.New("reading the certificate's SANs: trailing bytes")
		}
		for _, name := range names {
			if name.Class == asn1.ClassContextSpecific && name.Tag == uriNameTag {
				out = append(out, string(name.Bytes))
			}
		}
	}
	return out, nil
}
