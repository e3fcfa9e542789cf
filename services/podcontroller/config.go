package podcontroller

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// Defaults of Config.
const (
	UnmanagedNodeSelectorDefault = "node-role.kubernetes.io/control-plane"
	BestEffortFloorDefault       = "cpu=10m,memory=16Mi"
	WorkersDefault               = 64               // as a closed loop they must keep up with the controllers that create Pods
	cacheSyncDefault             = 10 * time.Minute // a large cluster lists for minutes, and a restart loop only adds heat
	workersMax                   = 256
	namespaceDefault             = "default"
	serviceAccountNamespace      = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	leaseName                    = "bigfleet-podcontroller"
)

// Config is what a pod controller needs. The zero value of a field that is not required means the documented default.
type Config struct {
	REST      *rest.Config         // required: the cluster's API server
	Telemetry *telemetry.Telemetry // required
	// Ops are the ports for metrics and health. A lost one is bound again; it never stops the work.
	Ops       []*telemetry.OpsPort
	Namespace string // of the Lease; default: that of the Pod, else default

	PriorityClassDefaults string   // YAML file: class -> {interruptionPenalty, reclamationPenalty}
	ExcludeNamespaces     []string // whose Pods get no request
	UnmanagedNodeSelector string   // nodes that are not BigFleet's; control-plane nodes
	CountForeignNodes     bool     // Pods on nodes that no machine of BigFleet stands behind ask as well
	BestEffortFloor       string   // what a Pod without cpu and memory requests counts as; cpu=10m,memory=16Mi

	NoLeaderElection bool
	Workers          int           // 64
	CacheSyncTimeout time.Duration // 10 min
	QPS              float32       // no limit of ours
	Burst            int

	unmanaged labels.Selector
	floor     corev1.ResourceList
}

// check reports everything that is wrong at once, and fills defaults.
func (c *Config) check() error {
	var errs []error
	var err error
	c.UnmanagedNodeSelector = cmp.Or(c.UnmanagedNodeSelector, UnmanagedNodeSelectorDefault)
	if c.unmanaged, err = labels.Parse(c.UnmanagedNodeSelector); err != nil {
		errs = append(errs, fmt.Errorf("--unmanaged-node-selector: %w", err))
	} else if c.unmanaged.Empty() {
		errs = append(errs, errors.New("--unmanaged-node-selector: matches every node; no Pod would count"))
	}
	if c.floor, err = parseFloor(cmp.Or(c.BestEffortFloor, BestEffortFloorDefault)); err != nil {
		errs = append(errs, fmt.Errorf("--best-effort-floor: %w", err))
	}
	if c.Workers < 0 || c.Workers > workersMax {
		errs = append(errs, fmt.Errorf("--workers %d: want 1 to %d", c.Workers, workersMax))
	}
	if c.CacheSyncTimeout < 0 {
		errs = append(errs, fmt.Errorf("--cache-sync-timeout %v: must not be negative", c.CacheSyncTimeout))
	}
	c.Workers = cmp.Or(c.Workers, WorkersDefault)
	c.CacheSyncTimeout = cmp.Or(c.CacheSyncTimeout, cacheSyncDefault)
	if c.Namespace == "" {
		c.Namespace = namespaceDefault
		if b, err := os.ReadFile(serviceAccountNamespace); err == nil && len(strings.TrimSpace(string(b))) > 0 {
			c.Namespace = strings.TrimSpace(string(b))
		}
	}
	return errors.Join(errs...)
}

// parseFloor reads name=quantity pairs.
func parseFloor(text string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: want name=quantity, as in %s", pair, BestEffortFloorDefault)
		}
		q, err := resource.ParseQuantity(value)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%q is not a quantity of %s", value, name)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}
