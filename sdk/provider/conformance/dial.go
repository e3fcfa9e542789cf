package conformance

import (
	"crypto/tls"
	"net/http"
	"sync"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"

	"connectrpc.com/connect"
)

// dialer makes clients that speak gRPC over HTTP/2, as shards do.
type dialer struct {
	mu    sync.Mutex
	addr  string
	plain *http.Client
	all   []*http.Transport
	byTLS map[*tls.Config]*http.Client
}

func newDialer(t Target) *dialer {
	return &dialer{addr: t.Addr, byTLS: map[*tls.Config]*http.Client{}}
}

// move points all later clients to another address.
func (d *dialer) move(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addr = addr
	for _, t := range d.all {
		t.CloseIdleConnections()
	}
}

func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.all {
		t.CloseIdleConnections()
	}
}

func (d *dialer) fresh(config *tls.Config) *http.Client {
	t := &http.Transport{Protocols: new(http.Protocols)}
	if config == nil {
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP2(true)
		t.TLSClientConfig = config.Clone()
	}
	d.all = append(d.all, t)
	return &http.Client{Transport: t}
}

func (d *dialer) client(config *tls.Config) (*http.Client, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if config == nil {
		if d.plain == nil {
			d.plain = d.fresh(nil)
		}
		return d.plain, "http://" + d.addr
	}
	if d.byTLS[config] == nil {
		d.byTLS[config] = d.fresh(config)
	}
	return d.byTLS[config], "https://" + d.addr
}

func options() connect.ClientOption {
	return connect.WithClientOptions(connect.WithGRPC(), connect.WithReadMaxBytes(256<<20), connect.WithSendMaxBytes(64<<20))
}

func (d *dialer) provider(config *tls.Config) bigfleetv1alpha1connect.CapacityProviderClient {
	h, url := d.client(config)
	return bigfleetv1alpha1connect.NewCapacityProviderClient(h, url, options())
}

// another is a provider client on a connection of its own.
func (d *dialer) another(config *tls.Config) bigfleetv1alpha1connect.CapacityProviderClient {
	d.mu.Lock()
	h, url := d.fresh(config), "http://"+d.addr
	d.mu.Unlock()
	if config != nil {
		url = "https" + url[len("http"):]
	}
	return bigfleetv1alpha1connect.NewCapacityProviderClient(h, url, options())
}

func (d *dialer) admin(config *tls.Config) bigfleetv1alpha1connect.ProviderAdminClient {
	h, url := d.client(config)
	return bigfleetv1alpha1connect.NewProviderAdminClient(h, url, options())
}
