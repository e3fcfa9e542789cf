package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Check implements provider.Checker: AWS answers, offers the types in their zones, and has the commitments that are named.
func (b *backend) Check(ctx context.Context, offerings []provider.Offering) (warnings []error, err error) {
	names := map[types.InstanceType]bool{}
	for _, o := range offerings {
		names[types.InstanceType(o.InstanceType)] = true
	}
	shapes, err := describeTypes(ctx, b.cloud.ec2, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return nil, err
	}
	offered, err := b.offeredIn(ctx, slices.Sorted(maps.Keys(shapes)))
	if err != nil {
		return nil, err
	}
	spot := false
	for _, o := range offerings {
		s, known := shapes[o.InstanceType]
		switch {
		case !known:
			err = errors.Join(err, fmt.Errorf("offering %q: EC2 has no instance type %q", o.Key(), o.InstanceType))
			continue
		case !offered[poolKey{instanceType: o.InstanceType, zone: o.Zone}]:
			err = errors.Join(err, fmt.Errorf("offering %q: %s is not offered in %s", o.Key(), o.InstanceType, o.Zone))
		case o.CapacityType == provider.Spot && !s.Spot:
			err = errors.Join(err, fmt.Errorf("offering %q: %s is not offered as spot", o.Key(), o.InstanceType))
		case o.CapacityType == provider.Spot && s.LocalDiskGB > 0:
			err = errors.Join(err, fmt.Errorf("offering %q: the local disks of spot %s cannot be erased between two clusters; offer it as on_demand", o.Key(), o.InstanceType))
		}
		if arch := o.Labels["kubernetes.io/arch"]; arch != "" && arch != s.kubernetesArch() || arch == "" && s.kubernetesArch() != "amd64" {
			err = errors.Join(err, fmt.Errorf("offering %q: the label kubernetes.io/arch of %s must be %s", o.Key(), o.InstanceType, s.kubernetesArch()))
		}
		if cpu := o.Resources["cpu"]; cpu != strconv.FormatInt(s.VCPUs, 10) {
			warnings = append(warnings, fmt.Errorf("offering %q: %s has %d vCPUs, the offering says %s", o.Key(), o.InstanceType, s.VCPUs, cpu))
		}
		spot = spot || o.CapacityType == provider.Spot
	}
	if spot && b.settings.QueueURL == "" {
		warnings = append(warnings, errors.New("queue_url is empty: the provider learns of a spot interruption only when the instance is gone, not two minutes before"))
	}
	more, failed := b.checkCommitments(ctx, offerings)
	return append(warnings, more...), errors.Join(err, failed)
}

// offeredIn is which of the types EC2 sells in which zone.
func (b *backend) offeredIn(ctx context.Context, names []string) (map[poolKey]bool, error) {
	out := map[poolKey]bool{}
	for part := range slices.Chunk(names, looksMax) {
		in := &ec2.DescribeInstanceTypeOfferingsInput{
			LocationType: types.LocationTypeAvailabilityZone, MaxResults: awssdk.Int32(1000),
			Filters: []types.Filter{{Name: awssdk.String("instance-type"), Values: part}},
		}
		for {
			page, err := call(ctx, "ec2.DescribeInstanceTypeOfferings", func(ctx context.Context) (*ec2.DescribeInstanceTypeOfferingsOutput, error) {
				return b.cloud.ec2.DescribeInstanceTypeOfferings(ctx, in)
			})
			if err != nil {
				return nil, fmt.Errorf("which types are offered where: %w", err)
			}
			for _, o := range page.InstanceTypeOfferings {
				out[poolKey{instanceType: string(o.InstanceType), zone: awssdk.ToString(o.Location)}] = true
			}
			if awssdk.ToString(page.NextToken) == "" {
				break
			}
			in.NextToken = page.NextToken
		}
	}
	return out, nil
}

// checkCommitments compares reserved offerings with what the account has committed to.
func (b *backend) checkCommitments(ctx context.Context, offerings []provider.Offering) (warnings []error, err error) {
	if !slices.ContainsFunc(offerings, func(o provider.Offering) bool { return o.CapacityType == provider.Reserved }) {
		return nil, nil
	}
	var byPlan []string
	for _, o := range offerings {
		if o.CapacityType != provider.Reserved {
			continue
		}
		if id := b.settings.Reservations[o.Key()]; id != "" {
			more, failed := b.checkReservation(ctx, o, id)
			warnings, err = append(warnings, more...), errors.Join(err, failed)
			continue
		}
		byPlan = append(byPlan, o.InstanceType)
	}
	if len(byPlan) == 0 {
		return warnings, err
	}
	rates, failed := b.savingsRates(ctx, byPlan)
	plans, more := b.savingsPlans(ctx)
	if err = errors.Join(err, failed, more); err != nil {
		return warnings, err
	}
	committed, wanted := 0.0, 0.0
	for _, p := range plans {
		if c, parsed := strconv.ParseFloat(awssdk.ToString(p.Commitment), 64); parsed == nil {
			committed += c
		}
	}
	for _, o := range offerings {
		if !b.bySavingsPlan(o) {
			continue
		}
		rate, ok := rates[o.InstanceType]
		if !ok {
			err = errors.Join(err, fmt.Errorf("offering %q is reserved, but names no capacity reservation and no active Savings Plan covers %s", o.Key(), o.InstanceType))
		}
		wanted += rate * float64(o.Count)
	}
	if wanted > committed {
		warnings = append(warnings, fmt.Errorf("the reserved offerings would use %.2f USD per hour of Savings Plans that cover %.2f; usage above that costs the list price; lower their counts", wanted, committed))
	}
	return warnings, err
}

func (b *backend) checkReservation(ctx context.Context, o provider.Offering, id string) (warnings []error, err error) {
	out, err := call(ctx, "ec2.DescribeCapacityReservations", func(ctx context.Context) (*ec2.DescribeCapacityReservationsOutput, error) {
		return b.cloud.ec2.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{id}})
	})
	if err != nil {
		return nil, fmt.Errorf("reservations[%s]: %w", o.Key(), err)
	}
	if len(out.CapacityReservations) != 1 {
		return nil, fmt.Errorf("reservations[%s]: the account has no capacity reservation %s", o.Key(), id)
	}
	r := out.CapacityReservations[0]
	if kind, zone := awssdk.ToString(r.InstanceType), awssdk.ToString(r.AvailabilityZone); kind != o.InstanceType || zone != o.Zone {
		return nil, fmt.Errorf("reservations[%s]: %s is for %s in %s, the offering for %s in %s", o.Key(), id, kind, zone, o.InstanceType, o.Zone)
	}
	if r.State != types.CapacityReservationStateActive {
		return nil, fmt.Errorf("reservations[%s]: %s is %s", o.Key(), id, r.State)
	}
	if n := int(awssdk.ToInt32(r.TotalInstanceCount)); n < o.Count {
		warnings = append(warnings, fmt.Errorf("offering %q has %d slots, %s holds %d instances: lower the count", o.Key(), o.Count, id, n))
	}
	return warnings, nil
}
