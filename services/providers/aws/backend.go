package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
		return "", fmt.Errorf("host %q is no EC2 instance (aws:///zone/i-...)", ref)
	}
	return id, nil
}

// Create launches one instance: by CreateFleet, or by RunInstances into a capacity reservation. The operation id is the client
// token, so the same operation launches once.
func (b *backend) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	pool := poolOf(op.Machine)
	if err := b.empty.check(pool); err != nil {
		return provider.Host{}, err
	}
	launch := b.fleetOfOne
	if b.settings.Reservations[op.Machine.Offering] != "" {
		launch = b.intoReservation
	}
	id, err := launch(ctx, op)
	b.empty.note(pool, err)
	if err != nil {
		return provider.Host{}, err
	}
	i, err := b.await(ctx, id, "running", types.InstanceStateNameRunning, types.InstanceStateNameStopped) // stopped by an earlier try
	if err == nil {
		err = b.resettable(ctx, op.Machine, i)
	}
	if err == nil && stateOf(i) == types.InstanceStateNameRunning && b.settings.Idle == idleStopped && op.Machine.CapacityType != provider.Spot {
		err = b.stop(ctx, id)
	}
	h := b.host(i)
	if h.Ref == "" {
		h = provider.Host{Ref: ref(op.Machine.Zone, id), MachineID: op.Machine.ID, StoreID: op.StoreID, OperationID: op.ID}
	}
	return h, err
}

func (b *backend) fleetOfOne(ctx context.Context, op provider.CreateOp) (string, error) {
	var overrides []types.FleetLaunchTemplateOverridesRequest
	for _, subnet := range b.subnets(op.Machine.Zone) {
		o := types.FleetLaunchTemplateOverridesRequest{InstanceType: types.InstanceType(op.Machine.InstanceType)}
		if subnet == "" {
			o.AvailabilityZone = &op.Machine.Zone
		} else {
			o.SubnetId = &subnet
		}
		overrides = append(overrides, o)
	}
	in := &ec2.CreateFleetInput{
		Type: types.FleetTypeInstant, ClientToken: &op.ID,
		LaunchTemplateConfigs: []types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateId: some(b.settings.LaunchTemplate.ID), LaunchTemplateName: some(b.settings.LaunchTemplate.Name), Version: awssdk.String(b.version()),
			},
			Overrides: overrides,
		}},
		TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity: awssdk.Int32(1), DefaultTargetCapacityType: types.DefaultTargetCapacityTypeOnDemand,
		},
		TagSpecifications: b.tags(op, types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeFleet),
	}
	if op.Machine.CapacityType == provider.Spot {
		in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeSpot
		in.SpotOptions = &types.SpotOptionsRequest{
			AllocationStrategy: types.SpotAllocationStrategyPriceCapacityOptimized, InstanceInterruptionBehavior: types.SpotInstanceInterruptionBehaviorTerminate,
		}
	} else {
		in.OnDemandOptions = &types.OnDemandOptionsRequest{AllocationStrategy: types.FleetOnDemandAllocationStrategyLowestPrice}
	}
	out, err := call(ctx, "ec2.CreateFleet", func(ctx context.Context) (*ec2.CreateFleetOutput, error) {
		out, err := b.cloud.ec2.CreateFleet(ctx, in)
		if err != nil {
			return nil, err
		}
		if len(out.Instances) == 0 || len(out.Instances[0].InstanceIds) == 0 {
			return nil, fleetError(out)
		}
		return out, nil
	})
	if err != nil {
		return "", fmt.Errorf("launch %s: %w", poolOf(op.Machine), err)
	}
	return out.Instances[0].InstanceIds[0], nil
}

// launchError is an error of CreateFleet, which reports why there is no instance in a successful answer.
type launchError struct{ code, message string }

func fleetError(out *ec2.CreateFleetOutput) error {
	if len(out.Errors) == 0 {
		return &launchError{"UnfulfillableCapacity", "the fleet " + awssdk.ToString(out.FleetId) + " has no instance and no error"}
	}
	e := out.Errors[0] // of several subnets in one zone: a stock-out is the zone's
	return &launchError{awssdk.ToString(e.ErrorCode), awssdk.ToString(e.ErrorMessage)}
}

func (b *backend) intoReservation(ctx context.Context, op provider.CreateOp) (string, error) {
	reservation := b.settings.Reservations[op.Machine.Offering]
	in := &ec2.RunInstancesInput{
		MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), ClientToken: &op.ID, InstanceType: types.InstanceType(op.Machine.InstanceType),
		LaunchTemplate: &types.LaunchTemplateSpecification{
			LaunchTemplateId: some(b.settings.LaunchTemplate.ID), LaunchTemplateName: some(b.settings.LaunchTemplate.Name), Version: awssdk.String(b.version()),
		},
		CapacityReservationSpecification: &types.CapacityReservationSpecification{
			CapacityReservationTarget: &types.CapacityReservationTarget{CapacityReservationId: &reservation},
		},
		TagSpecifications: b.tags(op, types.ResourceTypeInstance, types.ResourceTypeVolume),
	}
	if subnet := b.subnets(op.Machine.Zone)[0]; subnet != "" {
		in.SubnetId = &subnet
	} else {
		in.Placement = &types.Placement{AvailabilityZone: &op.Machine.Zone}
	}
	out, err := call(ctx, "ec2.RunInstances", func(ctx context.Context) (*ec2.RunInstancesOutput, error) { return b.cloud.ec2.RunInstances(ctx, in) })
	switch {
	case err != nil:
		return "", fmt.Errorf("launch %s into %s: %w", poolOf(op.Machine), reservation, err)
	case len(out.Instances) != 1:
		return "", fmt.Errorf("launch into %s: RunInstances answered with %d instances", reservation, len(out.Instances))
	}
	return awssdk.ToString(out.Instances[0].InstanceId), nil
}

func (b *backend) version() string {
	if v := b.settings.LaunchTemplate.Version; v != "" {
		return v
	}
	return "$Default"
}

// subnets are those of a zone; one empty name leaves the choice to EC2.
func (b *backend) subnets(zone string) []string {
	if s := b.settings.Subnets[zone]; len(s) > 0 {
		return s
	}
	return []string{""}
}

func (b *backend) tags(op provider.CreateOp, resources ...types.ResourceType) (out []types.TagSpecification) {
	all := map[string]string{
		tagProvider: b.Name, tagStore: op.StoreID, tagMachine: op.Machine.ID, tagOperation: op.ID, tagName: op.Machine.ID,
	}
	for k, v := range b.settings.Tags {
		all[k] = v
	}
	for _, r := range resources {
		out = append(out, types.TagSpecification{ResourceType: r, Tags: tagList(all)})
	}
	return out
}

func tagList(all map[string]string) (out []types.Tag) {
	for k, v := range all {
		out = append(out, types.Tag{Key: awssdk.String(k), Value: awssdk.String(v)})
	}
	slices.SortFunc(out, func(a, b types.Tag) int { return strings.Compare(*a.Key, *b.Key) })
	return out
}

func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// resettable refuses what a new root volume does not clean.
func (b *backend) resettable(ctx context.Context, m provider.Machine, i *types.Instance) error {
	if v := volumes(i); len(v) > 0 {
		return fmt.Errorf("the launch template attaches volumes beside the root volume (%s): what one cluster writes there would reach the next; enlarge the root volume instead",
			strings.Join(v, ", "))
	}
	s, err := b.shape(ctx, m.InstanceType)
	if err != nil {
		return err
	}
	if m.CapacityType == provider.Spot && s.LocalDiskGB > 0 {
		return fmt.Errorf("%s has local disks, which only a stop erases, and a spot instance cannot be stopped: offer it as on_demand", m.InstanceType)
	}
	return nil
}

// volumes are the attached volumes of an instance other than its root volume.
func volumes(i *types.Instance) (out []string) {
	for _, d := range i.BlockDeviceMappings {
		if d.Ebs != nil && awssdk.ToString(d.DeviceName) != awssdk.ToString(i.RootDeviceName) {
			out = append(out, awssdk.ToString(d.Ebs.VolumeId)+" at "+awssdk.ToString(d.DeviceName))
		}
	}
	return out
}

// look describes many instances in one call, for those who wait for a state.
func (b *backend) look(ctx context.Context, ids []string) ([]provider.Result[*types.Instance], error) {
	found := map[string]*types.Instance{}
	err := b.describe(ctx, types.Filter{Name: awssdk.String("instance-id"), Values: ids}, func(i *types.Instance) error {
		found[awssdk.ToString(i.InstanceId)] = i
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]provider.Result[*types.Instance], len(ids))
	for n, id := range ids {
		out[n].Value = found[id]
	}
	return out, nil
}

// describe visits all instances that a filter lets through, page by page.
func (b *backend) describe(ctx context.Context, filter types.Filter, visit func(*types.Instance) error) error {
	in := &ec2.DescribeInstancesInput{Filters: []types.Filter{filter}, MaxResults: awssdk.Int32(1000)}
	for {
		out, err := call(ctx, "ec2.DescribeInstances", func(ctx context.Context) (*ec2.DescribeInstancesOutput, error) {
			return b.cloud.ec2.DescribeInstances(ctx, in)
		})
		if err != nil {
			return err
		}
		for r := range out.Reservations {
			for i := range out.Reservations[r].Instances {
				if err := visit(&out.Reservations[r].Instances[i]); err != nil {
					return err
				}
			}
		}
		if awssdk.ToString(out.NextToken) == "" {
			return nil
		}
		in.NextToken = out.NextToken
	}
}

// await asks for an instance until it is in one of the states. An instance that is young may not be shown yet; one that ends is
// an error, unless that is what is waited for.
func (b *backend) await(ctx context.Context, id, what string, states ...types.InstanceStateName) (*types.Instance, error) {
	state := "unknown"
	for {
		i, err := b.looks.Do(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("wait until %s is %s: %w", id, what, err)
		}
		if i != nil {
			now := stateOf(i)
			state = string(now)
			if slices.Contains(states, now) {
				return i, nil
			}
			if ended(now) {
				return nil, b.endedError(id, i)
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is %s, not %s: %w", id, state, what, context.Cause(ctx))
		case <-time.After(b.poll):
		}
	}
}

// endedError says why AWS ended an instance. Some refusals are told in this way, after a launch that seemed to succeed.
func (b *backend) endedError(id string, i *types.Instance) error {
	err := fmt.Errorf("%s is %s", id, stateOf(i))
	if r := i.StateReason; r != nil {
		code, _, _ := strings.Cut(awssdk.ToString(r.Message), ":")
		err = fmt.Errorf("%w: %s", err, awssdk.ToString(r.Message))
		if as := classes[strings.TrimPrefix(code, "Server.")]; as != nil {
			return as(err)
		}
	}
	return err
}

func stateOf(i *types.Instance) types.InstanceStateName {
	if i.State == nil {
		return ""
	}
	return i.State.Name
}

func ended(s types.InstanceStateName) bool {
	return s == types.InstanceStateNameShuttingDown || s == types.InstanceStateNameTerminated
}

// Describe reports the instances that carry this provider's tag and have not ended.
func (b *backend) Describe(ctx context.Context, found func(provider.Host) error) error {
	err := b.describe(ctx, types.Filter{Name: awssdk.String("tag:" + tagProvider), Values: []string{b.Name}}, func(i *types.Instance) error {
		if ended(stateOf(i)) {
			return nil
		}
		return found(b.host(i))
	})
	if err != nil {
		return fmt.Errorf("describe the instances of provider %s: %w", b.Name, err)
	}
	return ctx.Err()
}

// host is an instance as its tags tell it.
func (b *backend) host(i *types.Instance) provider.Host {
	if i == nil {
		return provider.Host{}
	}
	tags := map[string]string{}
	for _, t := range i.Tags {
		tags[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
	}
	zone := ""
	if i.Placement != nil {
		zone = awssdk.ToString(i.Placement.AvailabilityZone)
	}
	h := provider.Host{
		Ref: ref(zone, awssdk.ToString(i.InstanceId)), MachineID: tags[tagMachine], StoreID: tags[tagStore], OperationID: tags[tagOperation],
	}
	if tags[tagCluster] != "" {
		h.Binding = b.binding(h.MachineID, tags)
	}
	return h
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
		// The instance is gone. Where the cluster is gone too, nobody needs its Node to be removed.
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
