package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

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

// endedError says why AWS ended an instance. Some refusals arrive in this way, after a launch that seemed to succeed.
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
