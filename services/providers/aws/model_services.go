package aws

import (
	"context"
	"fmt"
	"strconv"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	savingstypes "github.com/aws/aws-sdk-go-v2/service/savingsplans/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// SendCommand is refused until the agent of an instance has called, which it does after the instance runs.
func (m *model) SendCommand(ctx context.Context, in *ssm.SendCommandInput, _ ...func(*ssm.Options)) (*ssm.SendCommandOutput, error) {
	return do(ctx, m, "ssm.SendCommand", func() (*ssm.SendCommandOutput, error) {
		i := m.Instances[in.InstanceIds[0]]
		if i == nil || m.state(i) != types.InstanceStateNameRunning || time.Since(i.Since) < 2*m.lag {
			return nil, apiError("InvalidInstanceId", "Instances [[%s]] not in a valid state for account", in.InstanceIds[0])
		}
		c := &modelCommand{Instance: i.ID, Since: time.Now()}
		if err := i.boot(in.Parameters["commands"]); err != nil {
			c.Error = err.Error()
		}
		if m.hookError != "" {
			c.Error = m.hookError
		}
		id := m.id("command")
		m.Commands[id] = c
		return &ssm.SendCommandOutput{Command: &ssmtypes.Command{CommandId: &id}}, nil
	})
}

// GetCommandInvocation does not know a command that was sent a moment ago.
func (m *model) GetCommandInvocation(ctx context.Context, in *ssm.GetCommandInvocationInput, _ ...func(*ssm.Options)) (*ssm.GetCommandInvocationOutput, error) {
	return read(ctx, m, "ssm.GetCommandInvocation", func() (*ssm.GetCommandInvocationOutput, error) {
		c := m.Commands[*in.CommandId]
		if c == nil || c.Instance != *in.InstanceId || time.Since(c.Since) < m.lag/2 {
			return nil, apiError("InvocationDoesNotExist", "The command %s has no invocation on %s", *in.CommandId, *in.InstanceId)
		}
		out := &ssm.GetCommandInvocationOutput{Status: ssmtypes.CommandInvocationStatusSuccess}
		switch {
		case time.Since(c.Since) < m.lag:
			out.Status = ssmtypes.CommandInvocationStatusInProgress
		case c.Error != "":
			out.Status, out.ResponseCode, out.StandardErrorContent = ssmtypes.CommandInvocationStatusFailed, 1, &c.Error
		}
		return out, nil
	})
}

// ReceiveMessage waits less than SQS does.
func (m *model) ReceiveMessage(ctx context.Context, _ *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out, err := read(ctx, m, "sqs.ReceiveMessage", func() (*sqs.ReceiveMessageOutput, error) {
		out := &sqs.ReceiveMessageOutput{}
		for n, body := range m.queue {
			out.Messages = append(out.Messages, sqstypes.Message{Body: awssdk.String(body), ReceiptHandle: awssdk.String(strconv.Itoa(m.acked + n))})
		}
		return out, nil
	})
	if err == nil && len(out.Messages) == 0 {
		rest(ctx, 10*time.Millisecond)
	}
	return out, err
}

func (m *model) DeleteMessage(ctx context.Context, _ *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	return do(ctx, m, "sqs.DeleteMessage", func() (*sqs.DeleteMessageOutput, error) {
		if len(m.queue) > 0 {
			m.queue = m.queue[1:]
			m.acked++
		}
		return &sqs.DeleteMessageOutput{}, nil
	})
}

// DescribeInstanceStatus has no scheduled event, unless a test says so.
func (m *model) DescribeInstanceStatus(ctx context.Context, _ *ec2.DescribeInstanceStatusInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstanceStatusOutput, error) {
	return read(ctx, m, "ec2.DescribeInstanceStatus", func() (*ec2.DescribeInstanceStatusOutput, error) {
		out := &ec2.DescribeInstanceStatusOutput{}
		for id, i := range m.Instances {
			if i.Tags["test/retired"] != "" {
				out.InstanceStatuses = append(out.InstanceStatuses, types.InstanceStatus{InstanceId: awssdk.String(id), Events: []types.InstanceStatusEvent{{
					Code: types.EventCodeInstanceRetirement, InstanceEventId: awssdk.String("instance-event-" + id), Description: awssdk.String("The instance is running on degraded hardware"),
				}}})
			}
		}
		return out, nil
	})
}

// zones are where the model sells every recorded type.
func (m *model) zones() []string { return []string{m.region + "a", m.region + "b", m.region + "c"} }

func (m *model) DescribeInstanceTypes(ctx context.Context, in *ec2.DescribeInstanceTypesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstanceTypesOutput, error) {
	return read(ctx, m, "ec2.DescribeInstanceTypes", func() (*ec2.DescribeInstanceTypesOutput, error) {
		out := &ec2.DescribeInstanceTypesOutput{}
		for _, name := range in.InstanceTypes {
			s, ok := recorded.Types[string(name)]
			if !ok {
				return nil, apiError("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", name)
			}
			out.InstanceTypes = append(out.InstanceTypes, s.info(name))
		}
		return out, nil
	})
}

// info is the opposite of shapeOf.
func (s shape) info(name types.InstanceType) types.InstanceTypeInfo {
	i := types.InstanceTypeInfo{
		InstanceType: name, ProcessorInfo: &types.ProcessorInfo{SupportedArchitectures: []types.ArchitectureType{types.ArchitectureType(s.Arch)}},
		VCpuInfo: &types.VCpuInfo{DefaultVCpus: awssdk.Int32(int32(s.VCPUs))}, MemoryInfo: &types.MemoryInfo{SizeInMiB: &s.MemoryMiB},
		NetworkInfo:           &types.NetworkInfo{MaximumNetworkInterfaces: awssdk.Int32(int32(s.Interfaces)), Ipv4AddressesPerInterface: awssdk.Int32(int32(s.Addresses))},
		SupportedUsageClasses: []types.UsageClassType{types.UsageClassTypeOnDemand},
	}
	if s.Spot {
		i.SupportedUsageClasses = append(i.SupportedUsageClasses, types.UsageClassTypeSpot)
	}
	if s.LocalDiskGB > 0 {
		i.InstanceStorageInfo = &types.InstanceStorageInfo{TotalSizeInGB: &s.LocalDiskGB}
	}
	if s.GPUs > 0 {
		i.GpuInfo = &types.GpuInfo{Gpus: []types.GpuDeviceInfo{{Count: awssdk.Int32(int32(s.GPUs)), Manufacturer: &s.GPUMaker, Name: &s.GPU}}}
	}
	return i
}

func (m *model) DescribeInstanceTypeOfferings(ctx context.Context, in *ec2.DescribeInstanceTypeOfferingsInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstanceTypeOfferingsOutput, error) {
	return read(ctx, m, "ec2.DescribeInstanceTypeOfferings", func() (*ec2.DescribeInstanceTypeOfferingsOutput, error) {
		out := &ec2.DescribeInstanceTypeOfferingsOutput{}
		for _, name := range in.Filters[0].Values {
			for _, zone := range m.zones() {
				out.InstanceTypeOfferings = append(out.InstanceTypeOfferings, types.InstanceTypeOffering{InstanceType: types.InstanceType(name), Location: &zone})
			}
		}
		return out, nil
	})
}

// modelDiscount is the price of the model's spot and Savings Plans beside the list price.
const modelDiscount = 0.5

func (m *model) DescribeSpotPriceHistory(ctx context.Context, in *ec2.DescribeSpotPriceHistoryInput, _ ...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	return read(ctx, m, "ec2.DescribeSpotPriceHistory", func() (*ec2.DescribeSpotPriceHistoryOutput, error) {
		out := &ec2.DescribeSpotPriceHistoryOutput{}
		for _, name := range in.InstanceTypes {
			for _, zone := range m.zones() {
				out.SpotPriceHistory = append(out.SpotPriceHistory, types.SpotPrice{
					InstanceType: name, AvailabilityZone: &zone, Timestamp: awssdk.Time(time.Now()),
					SpotPrice: awssdk.String(strconv.FormatFloat(modelDiscount*recorded.Prices[m.region][string(name)], 'f', 6, 64)),
				})
			}
		}
		return out, nil
	})
}

func (m *model) DescribeCapacityReservations(ctx context.Context, in *ec2.DescribeCapacityReservationsInput, _ ...func(*ec2.Options)) (*ec2.DescribeCapacityReservationsOutput, error) {
	return read(ctx, m, "ec2.DescribeCapacityReservations", func() (*ec2.DescribeCapacityReservationsOutput, error) {
		return &ec2.DescribeCapacityReservationsOutput{CapacityReservations: []types.CapacityReservation{{
			CapacityReservationId: &in.CapacityReservationIds[0], InstanceType: awssdk.String("m5.large"), AvailabilityZone: awssdk.String(m.region + "a"),
			TotalInstanceCount: awssdk.Int32(2), State: types.CapacityReservationStateActive,
		}}}, nil
	})
}

func (m *model) GetProducts(ctx context.Context, in *pricing.GetProductsInput, _ ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	return read(ctx, m, "pricing.GetProducts", func() (*pricing.GetProductsOutput, error) {
		name := ""
		for _, f := range in.Filters {
			if *f.Field == "instanceType" {
				name = *f.Value
			}
		}
		out := &pricing.GetProductsOutput{}
		if price := recorded.Prices[m.region][name]; price > 0 {
			out.PriceList = []string{fmt.Sprintf(`{"product":{"productFamily":"Compute Instance"},"terms":{"OnDemand":{"A.B":{"priceDimensions":{"A.B.C":{"unit":"Hrs","pricePerUnit":{"USD":"%.10f"}}}}}}}`, price)}
		}
		return out, nil
	})
}

func (m *model) DescribeSavingsPlans(ctx context.Context, _ *savingsplans.DescribeSavingsPlansInput, _ ...func(*savingsplans.Options)) (*savingsplans.DescribeSavingsPlansOutput, error) {
	return read(ctx, m, "savingsplans.DescribeSavingsPlans", func() (*savingsplans.DescribeSavingsPlansOutput, error) {
		return &savingsplans.DescribeSavingsPlansOutput{SavingsPlans: []savingstypes.SavingsPlan{{
			SavingsPlanId: awssdk.String("plan"), Commitment: awssdk.String("1.0"), Currency: savingstypes.CurrencyCodeUsd,
		}}}, nil
	})
}

func (m *model) DescribeSavingsPlanRates(ctx context.Context, in *savingsplans.DescribeSavingsPlanRatesInput, _ ...func(*savingsplans.Options)) (*savingsplans.DescribeSavingsPlanRatesOutput, error) {
	return read(ctx, m, "savingsplans.DescribeSavingsPlanRates", func() (*savingsplans.DescribeSavingsPlanRatesOutput, error) {
		out := &savingsplans.DescribeSavingsPlanRatesOutput{}
		for _, f := range in.Filters {
			if f.Name != savingstypes.SavingsPlanRateFilterNameInstanceType {
				continue
			}
			for _, name := range f.Values {
				price := recorded.Prices[m.region][name]
				for usage, rate := range map[string]float64{"BoxUsage:" + name: modelDiscount * price, "UnusedBox:" + name: price} {
					out.SearchResults = append(out.SearchResults, savingstypes.SavingsPlanRate{
						Currency: savingstypes.CurrencyCodeUsd, Rate: awssdk.String(strconv.FormatFloat(rate, 'f', 6, 64)), UsageType: awssdk.String(usage),
						Properties: []savingstypes.SavingsPlanRateProperty{{Name: savingstypes.SavingsPlanRatePropertyKeyInstanceType, Value: awssdk.String(name)}},
					})
				}
			}
		}
		return out, nil
	})
}
