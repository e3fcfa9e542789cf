package aws

import (
	"context"
	"fmt"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// launch makes an instance, or finds the one that the token made.
func (m *model) launch(token, what string, i modelInstance, tags []types.TagSpecification) (*modelInstance, error) {
	if t, again := m.Tokens[token]; again {
		if t.What != what {
			return nil, apiError("IdempotentParameterMismatch", "The client token %s was used with other parameters", token)
		}
		return m.Instances[t.Made], nil
	}
	i.ID, i.Tags, i.Disk, i.Root = m.id("i"), map[string]string{}, map[string]string{}, 1
	for _, s := range tags {
		for _, t := range s.Tags {
			if s.ResourceType == types.ResourceTypeInstance {
				i.Tags[*t.Key] = *t.Value
			}
		}
	}
	m.turn(&i, types.InstanceStateNamePending, types.InstanceStateNameRunning)
	m.Instances[i.ID] = &i
	m.Tokens[token] = modelToken{what, i.ID}
	return &i, nil
}

func (m *model) CreateFleet(ctx context.Context, in *ec2.CreateFleetInput, _ ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error) {
	return do(ctx, m, "ec2.CreateFleet", func() (*ec2.CreateFleetOutput, error) {
		c := in.LaunchTemplateConfigs[0]
		if name := awssdk.ToString(c.LaunchTemplateSpecification.LaunchTemplateName); name == "" && c.LaunchTemplateSpecification.LaunchTemplateId == nil {
			return nil, apiError("MissingParameter", "The launch template is missing")
		}
		o := c.Overrides[0]
		zone := awssdk.ToString(o.AvailabilityZone)
		if o.SubnetId != nil {
			zone = strings.TrimPrefix(*o.SubnetId, "subnet-")
		}
		spot := in.TargetCapacitySpecification.DefaultTargetCapacityType == types.DefaultTargetCapacityTypeSpot
		key := poolKey{instanceType: string(o.InstanceType), zone: zone}
		if m.empty[key] {
			return &ec2.CreateFleetOutput{FleetId: awssdk.String(m.id("fleet")), Errors: []types.CreateFleetError{{
				ErrorCode:    awssdk.String("InsufficientInstanceCapacity"),
				ErrorMessage: awssdk.String(fmt.Sprintf("There is no capacity available that matches your request: %s in %s", o.InstanceType, zone)),
			}}}, nil
		}
		made, err := m.launch(*in.ClientToken, fmt.Sprint(key, spot), modelInstance{Type: string(o.InstanceType), Zone: zone, Spot: spot}, in.TagSpecifications)
		if err != nil {
			return nil, err
		}
		return &ec2.CreateFleetOutput{FleetId: awssdk.String(m.id("fleet")), Instances: []types.CreateFleetInstance{{
			InstanceIds: []string{made.ID}, InstanceType: o.InstanceType, AvailabilityZone: &zone,
		}}}, nil
	})
}

func (m *model) RunInstances(ctx context.Context, in *ec2.RunInstancesInput, _ ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error) {
	return do(ctx, m, "ec2.RunInstances", func() (*ec2.RunInstancesOutput, error) {
		zone := ""
		if in.Placement != nil {
			zone = awssdk.ToString(in.Placement.AvailabilityZone)
		} else {
			zone = strings.TrimPrefix(awssdk.ToString(in.SubnetId), "subnet-")
		}
		reservation := awssdk.ToString(in.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId)
		key := poolKey{instanceType: string(in.InstanceType), zone: zone}
		if m.empty[key] {
			return nil, apiError("ReservationCapacityExceeded", "The requested reservation %s does not have sufficient capacity", reservation)
		}
		made, err := m.launch(*in.ClientToken, fmt.Sprint(key, reservation), modelInstance{Type: string(in.InstanceType), Zone: zone, Reservation: reservation}, in.TagSpecifications)
		if err != nil {
			return nil, err
		}
		return &ec2.RunInstancesOutput{Instances: []types.Instance{m.show(made)}}, nil
	})
}
