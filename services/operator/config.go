package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/bootstrap"
)

// BootstrapData is what a bootstrap template, or a Render function, sees of a machine.
type BootstrapData = bootstrap.Data

// Names of bootstrap renderers.
const (
	RendererAuto     = bootstrap.Auto
	RendererTemplate = bootstrap.Template
	RendererBuiltIn  = bootstrap.BuiltIn
	RendererStub     = bootstrap.Stub
)

// Config is what an operator needs. The zero value of a field that is not required means the documented default.
type Config struct {
	ClusterID string               // required: permanent identity of the cluster
	ShardAddr string               // required: host:port of the shard
	REST      *rest.Config         // required: the cluster's API server
	Namespace string               // of the Lease and the ConfigMaps; default: that of the Pod, else default
	Telemetry *telemetry.Telemetry // required
	// Ops are the ports for metrics and health. A lost one is bound again; it never stops the work.
	Ops []*telemetry.OpsPort

	TLS  identity.Files                                                    // empty: plaintext
	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // replaces the network on the way to the shard

	NoLeaderElection bool          // for tests and for processes that hold the only operator
	CacheSyncTimeout time.Duration // 2 min
	QPS              float32       // no limit of ours
	Burst            int

	RollupDebounce      time.Duration // 250 ms
	RollupInterval      time.Duration // 10 s
	ReconnectMin        time.Duration // 500 ms
	ReconnectMax        time.Duration // 30 s
	DispatchConcurrency int           // 32
	AckConcurrency      int           // 4
	AckQPS              float64       // 400
	DemandHold          time.Duration // 3 min
	NodeJoinTimeout     time.Duration // 10 min
	NodeNotReadyAfter   time.Duration // 5 min
	DrainedNodeTimeout  time.Duration // 2 min
	KeepDrainedNodes    bool          // do not delete the Node of a drained machine that is gone

	BootstrapRenderer     string // auto
	BootstrapTemplateFile string
	BootstrapTTL          time.Duration // 10 min
	BootstrapTokenPool    int           // 16
	// Render makes the boot data in code, in the place of every renderer above.
	Render         func(ctx context.Context, d *BootstrapData) ([]byte, error)
	APIServerURL   string // that machines use; default: the ConfigMap kube-public/cluster-info
	CABundleFile   string // default: the CA of REST
	KubeletVersion string // default: the API server's
}

const (
	namespaceDefault        = "default"
	serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	cacheSyncDefault        = 2 * time.Minute
	heartbeatDefault        = 10 * time.Second
)

// check reports everything that is wrong at once, and fills defaults.
func (c *Config) check() error {
	var errs []error
	require := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	require(c.ClusterID != "", "--cluster-id is required")
	if c.ClusterID != "" {
		if err := (identity.ID{Kind: identity.Cluster, Name: c.ClusterID}).Check(); err != nil {
			errs = append(errs, fmt.Errorf("--cluster-id: %w", err))
		}
	}
	require(c.ShardAddr != "", "--shard-addr is required")
	if c.ShardAddr != "" {
		errs = append(errs, config.CheckDial("shard-addr", c.ShardAddr))
	}
	errs = append(errs, c.bounds()...)
	require(c.ReconnectMax == 0 || c.ReconnectMin <= c.ReconnectMax, "--reconnect-initial-backoff must not exceed --reconnect-max-backoff")
	if c.Namespace == "" {
		c.Namespace = ownNamespace()
	}
	c.CacheSyncTimeout = cmp.Or(c.CacheSyncTimeout, cacheSyncDefault)
	return errors.Join(errs...)
}

// bounds checks what has a smallest and a largest value (OP-2.2). Zero means the default.
func (c *Config) bounds() (errs []error) {
	for _, d := range []struct {
		flag             string
		value, min, most time.Duration
	}{
		{"rollup-debounce", c.RollupDebounce, time.Millisecond, 10 * time.Second},  // more would be a heartbeat
		{"rollup-interval", c.RollupInterval, time.Second, 5 * time.Minute},        // the whole demand each time; a held roll-up waits for repetitions
		{"reconnect-initial-backoff", c.ReconnectMin, time.Millisecond, time.Hour}, //
		{"reconnect-max-backoff", c.ReconnectMax, time.Millisecond, time.Hour},     //
		{"bootstrap-ttl", c.BootstrapTTL, 2 * time.Minute, 24 * time.Hour},         // a machine boots for minutes; a stolen token lives as long
		{"node-join-timeout", c.NodeJoinTimeout, time.Second, 24 * time.Hour},      //
		{"node-not-ready-after", c.NodeNotReadyAfter, time.Second, 24 * time.Hour}, // a kubelet restarts in less than a minute
		{"drained-node-timeout", c.DrainedNodeTimeout, time.Second, 24 * time.Hour},
		{"demand-hold", c.DemandHold, time.Second, time.Hour},              // longer pays for unused machines
		{"cache-sync-timeout", c.CacheSyncTimeout, time.Second, time.Hour}, // not ready until then
	} {
		if d.value != 0 && (d.value < d.min || d.value > d.most) {
			errs = append(errs, fmt.Errorf("--%s %v: want %v to %v", d.flag, d.value, d.min, d.most))
		}
	}
	if d := c.BootstrapTTL; d%time.Second != 0 {
		errs = append(errs, fmt.Errorf("--bootstrap-ttl %v: want whole seconds, as tokens end with one", d))
	}
	for _, n := range []struct {
		flag        string
		value, most float64
	}{
		{"dispatch-concurrency", float64(c.DispatchConcurrency), 256}, // goroutines, and requests in flight at the API server
		{"ack-concurrency", float64(c.AckConcurrency), 256},
		{"ack-qps", c.AckQPS, 10_000},
		{"bootstrap-token-pool", float64(c.BootstrapTokenPool), 1024}, // each is a Secret
	} {
		if n.value < 0 || n.value > n.most {
			errs = append(errs, fmt.Errorf("--%s %v: want at most %v, and 0 for the default", n.flag, n.value, n.most))
		}
	}
	return errs
}

// ownNamespace is where the process runs.
func ownNamespace() string {
	if b, err := os.ReadFile(serviceAccountNamespace); err == nil {
		if ns := strings.TrimSpace(string(b)); ns != "" {
			return ns
		}
	}
	return namespaceDefault
}
