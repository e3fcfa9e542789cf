package console

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/console/clusters"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// Defaults of Config.
const (
	ListenDefault      = "127.0.0.1:7700"
	CoordinatorDefault = "127.0.0.1:7790"
	ViewersDefault     = 200
	viewersMax         = 10_000
)

// Config is what a console needs. The zero value of a field that is not required means the documented default.
type Config struct {
	Telemetry *telemetry.Telemetry // required
	// Ops are the ports for metrics and health. A lost one is bound again; it never stops the work.
	Ops []*telemetry.OpsPort

	Listen      string       // ListenDefault
	Listener    net.Listener // in the place of Listen
	ListenCert  string       // certificate for browsers, PEM; both or none
	ListenKey   string
	BehindProxy bool     // a proxy in front authenticates people and ends TLS
	Hosts       []string // names under which browsers may reach it; empty means any, on loopback only this host's

	Coordinators []string // addresses of replicas; empty means none, then Shards are required
	Shards       []string // id=host:port of shards that no coordinator lists
	TLS          identity.Files
	Viewers      int // streams of browsers at a time; ViewersDefault

	// AllowWrites lets people give orders to shards. Everything below is then required, but OrderTLS without TLS (OPS-6.2).
	AllowWrites bool
	AuthHeader  string         // header in which the proxy names the user
	Writers     []string       // users who may; "*": every user whom the proxy names
	OrderTLS    identity.Files // a certificate of bigfleet://admin, for orders alone

	// Sentence tells a record in words. nil means the record's own detail.
	Sentence func(*pb.DecisionRecord) string
	// Clusters reads objects of clusters, for the paths of Pods. nil means none is read.
	Clusters clusters.Reader

	shards map[string]string
}

func (c *Config) check() error {
	c.Listen = cmp.Or(c.Listen, ListenDefault)
	c.Viewers = cmp.Or(c.Viewers, ViewersDefault)
	var errs []error
	if c.Viewers < 1 || c.Viewers > viewersMax {
		errs = append(errs, fmt.Errorf("--viewers %d: want 1 to %d", c.Viewers, viewersMax))
	}
	errs = append(errs, config.CheckListen("listen", c.Listen))
	if (c.ListenCert == "") != (c.ListenKey == "") {
		errs = append(errs, errors.New("--listen-cert and --listen-key: give both or none"))
	}
	if c.Listener == nil && !loopbackAddr(c.Listen) && c.ListenCert == "" && !c.BehindProxy {
		errs = append(errs, fmt.Errorf("--listen %s is not this host's loopback: give --listen-cert and --listen-key, or --behind-proxy when a proxy in front ends TLS and knows who asks", c.Listen))
	}
	for _, a := range c.Coordinators {
		errs = append(errs, config.CheckDial("coordinator", a))
	}
	c.shards = map[string]string{}
	for _, s := range c.Shards {
		id, addr, ok := strings.Cut(s, "=")
		if !ok || id == "" || config.CheckDial("shard", addr) != nil {
			errs = append(errs, fmt.Errorf("--shard %q: want id=host:port", s))
			continue
		}
		c.shards[id] = addr
	}
	errs = append(errs, c.checkWrites())
	if len(c.Coordinators) == 0 && len(c.Shards) == 0 {
		errs = append(errs, errors.New("there is nothing to show: give --coordinator, or --shard for each shard"))
	}
	return errors.Join(errs...)
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`)

// checkWrites wants all of what orders need, or nothing of it.
func (c *Config) checkWrites() error {
	if !c.AllowWrites {
		if c.AuthHeader != "" || len(c.Writers) > 0 || c.OrderTLS != (identity.Files{}) {
			return errors.New("--auth-header, --writers, --admin-cert and --admin-key do nothing without --allow-writes")
		}
		return nil
	}
	var errs []error
	if !c.BehindProxy || c.AuthHeader == "" || len(c.Writers) == 0 || len(c.Hosts) == 0 {
		errs = append(errs, errors.New("--allow-writes needs --behind-proxy, --auth-header, --writers and --hosts: a proxy that names who asks, who of them may, and the names of this console"))
	}
	if c.AuthHeader != "" && !headerName.MatchString(c.AuthHeader) {
		errs = append(errs, fmt.Errorf("--auth-header %q is not the name of a header", c.AuthHeader))
	}
	if slices.Contains(c.Writers, "") {
		errs = append(errs, errors.New("--writers: a name is empty"))
	}
	if tls := c.TLS.Cert != ""; (c.OrderTLS.Cert != "") != tls || (c.OrderTLS.Key != "") != tls {
		errs = append(errs, errors.New("--admin-cert and --admin-key: give both where --tls-cert is given, and none elsewhere; orders go under a certificate of their own"))
	}
	return errors.Join(errs...)
}

func loopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
