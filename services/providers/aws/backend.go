package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/prometheus/client_golang/prometheus"
)

// Config is what the backend needs.
type Config struct {
	Name       string // name of the provider; required
	Offerings  []provider.Offering
	Log        *slog.Logger          // required
	Registerer prometheus.Registerer // nil: no metrics of its own

	settings settings
	cloud    cloud
	nodes    *nodeready.Source // nil: there is no real cluster, and no Node is looked at
	poll     time.Duration     // how often a state is asked for; 0 means pollDefault
}

// backend implements provider.Backend and, of the optional interfaces, Deleter, Pricer, Notifier, Binder, Admitter, Attacher,
// Estimator and Checker.
type backend struct {
	Config
	log     *slog.Logger
	fleet   provider.Fleet
	looks   *provider.Batcher[string, *types.Instance]
	empty   emptyPools
	quotes  quotes
	metrics *metrics
}

const pollDefault = 2 * time.Second

// Instances of one DescribeInstances, and how long it waits for company. A filter takes 200 values.
const (
	looksMax  = 200
	looksWait = 100 * time.Millisecond
)

func newBackend(c Config) (*backend, error) {
	if c.Name == "" || c.Log == nil {
		return nil, errors.New("aws: Name and Log are required")
	}
	if c.poll == 0 {
		c.poll = pollDefault
	}
	b := &backend{Config: c, log: c.Log.With("provider", c.Name), empty: emptyPools{since: map[poolKey]time.Time{}, now: time.Now}}
	b.looks = provider.NewBatcher(min(looksWait, c.poll), looksMax, b.look)
	var err error
	b.metrics, err = newMetrics(c, b)
	return b, err
}

// Close ends the watches of Nodes.
func (b *backend) Close() error {
	if b.nodes != nil {
		b.nodes.Close()
	}
	return nil
}

// Attach implements provider.Attacher.
func (b *backend) Attach(f provider.Fleet) { b.fleet = f }

// DrainEstimate implements provider.Estimator: a root volume is replaced and the instance boots again. It is the time that AWS's
// documentation calls typical, not a measurement.
func (b *backend) DrainEstimate(provider.Offering) time.Duration { return 3 * time.Minute }

// Admit implements provider.Admitter.
func (b *backend) Admit(k provider.Kind, _ provider.Machine, cluster string) error {
	if k == provider.Configure && b.nodes != nil {
		return b.nodes.Known(cluster)
	}
	return nil
}

// The tags by which an instance is ours and whose it is. They are the truth for a provider whose store was lost.
const (
	tagProvider  = "bigfleet.lucy.sh/provider"
	tagStore     = "bigfleet.lucy.sh/store-id"
	tagMachine   = "bigfleet.lucy.sh/machine-id"
	tagOperation = "bigfleet.lucy.sh/operation-id"
	tagCluster   = "bigfleet.lucy.sh/cluster"
	tagMetadata  = "bigfleet.lucy.sh/shard-metadata"        // JSON, when it fits
	tagDigest    = "bigfleet.lucy.sh/shard-metadata-sha256" // instead
	tagName      = "Name"
)

var ownTags = []string{tagProvider, tagStore, tagMachine, tagOperation, tagCluster, tagMetadata, tagDigest, tagName}

// EC2's limits of a tag.
const (
	tagKeyMax   = 128
	tagValueMax = 256
)

// ref is the providerID that the cloud provider of Kubernetes gives a Node of the instance.
func ref(zone, id string) string { return "aws:///" + zone + "/" + id }

// instanceID is the instance of a ref.
func instanceID(ref string) (string, error) {
	id := ref[strings.LastIndexByte(ref, '/')+1:]
	if !strings.HasPrefix(ref, "aws:///") || !strings.HasPrefix(id, "i-") {
		return "", fmt.Errorf("host %q is not an EC2 instance (aws:///zone/i-...)", ref)
	}
	return id, nil
}

// Delete terminates the instance and waits until AWS calls it terminated. Without a host it looks for the machine's tag.
func (b *backend) Delete(ctx context.Context, op provider.DeleteOp) error {
	var ids []string
	if op.Machine.HostRef != "" {
		id, err := instanceID(op.Machine.HostRef)
		if err != nil {
			return err
		}
		ids = []string{id}
	} else if err := b.describe(ctx, types.Filter{Name: awssdk.String("tag:" + tagMachine), Values: []string{op.Machine.ID}}, func(i *types.Instance) error {
		if h := b.host(i); h.StoreID == op.StoreID && !ended(stateOf(i)) {
			ids = append(ids, awssdk.ToString(i.InstanceId))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, id := range ids {
		if err := b.terminate(ctx, id); err != nil {
			return err
		}
	}
	if b.nodes != nil && op.Machine.Cluster != "" && op.Machine.HostRef != "" {
		// The instance is gone. Where the cluster is gone too, its Node need not be removed.
		if err := b.nodes.Remove(ctx, op.Machine.Cluster, op.Machine.HostRef); err != nil {
			b.log.Warn("the Node of a terminated instance could not be removed", "machine", op.Machine.ID, "cluster", op.Machine.Cluster, "err", err)
		}
	}
	return nil
}

func (b *backend) terminate(ctx context.Context, id string) error {
	_, err := call(ctx, "ec2.TerminateInstances", func(ctx context.Context) (*ec2.TerminateInstancesOutput, error) {
		return b.cloud.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	})
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("terminate %s: %w", id, err)
	}
	for {
		i, err := b.looks.Do(ctx, id)
		if err != nil {
			return fmt.Errorf("wait until %s is terminated: %w", id, err)
		}
		if i == nil || stateOf(i) == types.InstanceStateNameTerminated {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is %s, not terminated: %w", id, stateOf(i), context.Cause(ctx))
		case <-time.After(b.poll):
		}
	}
}
