package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"
)

// WIRE-2.5, WIRE-2.7: the five forms, names byte for byte, cluster ids unescaped with slashes.
func TestParse(t *testing.T) {
	accepted := map[string]ID{
		"bigfleet://admin":                               {Kind: Admin},
		"bigfleet://readonly":                            {Kind: ReadOnly},
		"bigfleet://shard/shard-0":                       {Shard, "shard-0"},
		"bigfleet://shard/A_b.c-9":                       {Shard, "A_b.c-9"},
		"bigfleet://coordinator/node-1":                  {Coordinator, "node-1"},
		"bigfleet://cluster/red":                         {Cluster, "red"},
		"bigfleet://cluster/arn:aws:eks/a@b":             {Cluster, "arn:aws:eks/a@b"},
		"bigfleet://cluster/projects/p/z//c1":            {Cluster, "projects/p/z//c1"},
		"bigfleet://cluster/" + strings.Repeat("c", 253): {Cluster, strings.Repeat("c", 253)},
		"bigfleet://shard/" + strings.Repeat("s", 128):   {Shard, strings.Repeat("s", 128)},
	}
	for uri, want := range accepted {
		got, err := Parse(uri)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", uri, got, err, want)
		}
		if got.String() != uri {
			t.Errorf("Parse(%q).String() = %q", uri, got)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%q: %v", uri, err)
		}
	}
	refused := []string{
		"", "bigfleet://", "bigfleet:/admin", "BIGFLEET://admin", "https://admin", "bigfleet://admin/", "bigfleet://admin/x",
		"bigfleet://readonly/x", "bigfleet://shard", "bigfleet://shard/", "bigfleet://shard/a/b", "bigfleet://shard/a%2Fb",
		"bigfleet://shard/ a", "bigfleet://cluster/", "bigfleet://cluster/-a", "bigfleet://cluster/a b", "bigfleet://cluster/a%20b",
		"bigfleet://cluster/é", "bigfleet://cluster/" + strings.Repeat("c", 254), "bigfleet://shard/" + strings.Repeat("s", 129),
		"bigfleet://operator/x", "bigfleet://Admin",
	}
	for _, uri := range refused {
		if id, err := Parse(uri); !errors.Is(err, ErrForm) || !id.IsZero() {
			t.Errorf("Parse(%q) = %+v, %v, want ErrForm", uri, id, err)
		}
	}
	if err := (ID{Admin, "x"}).Check(); err == nil {
		t.Error("an admin with a name passed Check")
	}
	if got := (ID{}).String(); got != "" {
		t.Errorf("the zero ID prints %q", got)
	}
}

// certificate makes a parsed certificate's SAN extension from raw URIs, without url.Parse on the way.
func certificate(t *testing.T, uris ...string) *x509.Certificate {
	t.Helper()
	var names []asn1.RawValue
	names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte("bigfleet.example")})
	for _, uri := range uris {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(uri)})
	}
	value, err := asn1.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{Extensions: []pkix.Extension{{Id: subjectAltName, Value: value}}}
}

// SHARD-22.2, COORD-14.3: exactly one bigfleet:// URI SAN.
func TestExactlyOneIdentity(t *testing.T) {
	for _, test := range []struct {
		name string
		uris []string
		want ID
		err  error
	}{
		{"one", []string{"bigfleet://shard/a"}, ID{Shard, "a"}, nil},
		{"one beside another scheme", []string{"spiffe://x/y", "bigfleet://admin"}, ID{Kind: Admin}, nil},
		{"none", nil, ID{}, ErrNone},
		{"only another scheme", []string{"spiffe://x/y"}, ID{}, ErrNone},
		{"several", []string{"bigfleet://shard/a", "bigfleet://admin"}, ID{}, ErrSeveral},
		{"the same twice", []string{"bigfleet://shard/a", "bigfleet://shard/a"}, ID{}, ErrSeveral},
		{"two, one in upper case", []string{"bigfleet://shard/a", "BIGFLEET://admin"}, ID{}, ErrSeveral},
		{"upper case alone is no identity", []string{"BIGFLEET://admin"}, ID{}, ErrForm},
		{"unknown form", []string{"bigfleet://root"}, ID{}, ErrForm},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := FromCertificate(certificate(t, test.uris...))
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("got %+v, %v, want %+v, %v", got, err, test.want, test.err)
			}
		})
	}
	if _, err := FromCertificate(&x509.Certificate{}); !errors.Is(err, ErrNone) {
		t.Errorf("a certificate without SANs: %v", err)
	}
	broken := &x509.Certificate{Extensions: []pkix.Extension{{Id: subjectAltName, Value: []byte{0x30, 0x05, 0x01}}}}
	if _, err := FromCertificate(broken); err == nil {
		t.Error("a broken SAN extension was accepted")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"bigfleet://admin", "bigfleet://cluster/a/b", "bigfleet://shard/x", "bigfleet://"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		id, err := Parse(uri)
		if err != nil {
			return
		}
		if id.String() != uri {
			t.Errorf("Parse(%q) comes back as %q", uri, id)
		}
	})
}
