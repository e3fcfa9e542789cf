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
	NodeJoinTimeout     time.Duration // 10 min

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
	for flag, d := range map[string]time.Duration{
		"rollup-debounce": c.RollupDebounce, "rollup-interval": c.RollupInterval, "reconnect-initial-backoff": c.ReconnectMin,
		"reconnect-max-backoff": c.ReconnectMax, "bootstrap-ttl": c.BootstrapTTL, "node-join-timeout": c.NodeJoinTimeout, "cache-sync-timeout": c.CacheSyncTimeout,
	} {
		require(d >= 0, fmt.Sprintf("--%s %v: must not be negative", flag, d))
	}
	require(c.BootstrapTTL == 0 || c.BootstrapTTL >= 2*time.Minute, fmt.Sprintf("--bootstrap-ttl %v: want at least 2m", c.BootstrapTTL))
	require(c.ReconnectMax == 0 || c.ReconnectMin <= c.ReconnectMax, "--reconnect-initial-backoff must not exceed --reconnect-max-backoff")
	if c.Namespace == "" {
		c.Namespace = ownNamespace()
	}
	c.CacheSyncTimeout = cmp.Or(c.CacheSyncTimeout, cacheSyncDefault)
	return errors.Join(errs...)
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
