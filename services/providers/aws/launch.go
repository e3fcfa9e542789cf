package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

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
