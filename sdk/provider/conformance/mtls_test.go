package conformance_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
)

// authority makes a throw-away CA: the files of a provider, and a certificate for each set of SANs that is asked for.
func authority(t *testing.T) (identity.Files, func(sans ...string) (*tls.Config, error)) {
	t.Helper()
	ca, err := devca.New("conformance")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, err := ca.Write(dir, "provider", devca.Request{URIs: []string{"bigfleet://admin"}, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	return files, func(sans ...string) (*tls.Config, error) {
		n++
		own := filepath.Join(dir, strconv.Itoa(n))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, err
		}
		files, err := ca.Write(own, "client", devca.Request{URIs: sans})
		if err != nil {
			return nil, err
		}
		source, err := identity.Load(files, identity.Options{})
		if err != nil {
			return nil, err
		}
		return source.ClientConfig("127.0.0.1", nil), nil
	}
}

// PROV-2.4 to 2.9, 29.1: under mTLS the SDK passes core, cloud and spot, the rules about SANs included, with a certificate
// per identity from a throw-away CA.
func TestTheSDKConformsUnderMTLS(t *testing.T) {
	t.Parallel()
	files, certs := authority(t)
	_, addr, _ := good(t, provider.SubstrateReadiness(), provider.WithTLS(files), provider.WithRequireTLS(true))
	const shard = "conformance-mtls"
	config, err := certs("bigfleet://shard/" + shard)
	if err != nil {
		t.Fatal(err)
	}
	target := conformance.Target{
		Addr: addr, TLS: config, Shard: shard, Settle: 20 * time.Second, Watch: 100 * time.Millisecond,
		Profiles: []conformance.Profile{conformance.Core, conformance.Cloud, conformance.Spot}, Hooks: conformance.Hooks{Certs: certs},
	}
	report := conformance.Run(t, target, conformance.Options{Seed: 1, Only: []string{
		"who", "life", "once", "meta", "list", "args", "walk", "race/burst", "race/independent", "race/conflict", "field",
	}})
	t.Logf("%s: %d pass", report.Verdict, report.Count(conformance.Pass))
}
