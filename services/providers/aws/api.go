package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// The calls of AWS that this provider makes, and no others: a test compares them with deploy/aws/policy.json.
type (
	ec2API interface {
		CreateFleet(context.Context, *ec2.CreateFleetInput, ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
		RunInstances(context.Context, *ec2.RunInstancesInput, ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error)
		StartInstances(context.Context, *ec2.StartInstancesInput, ...func(*ec2.Options)) (*ec2.StartInstancesOutput, error)
		StopInstances(context.Context, *ec2.StopInstancesInput, ...func(*ec2.Options)) (*ec2.StopInstancesOutput, error)
		TerminateInstances(context.Context, *ec2.TerminateInstancesInput, ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error)
		CreateReplaceRootVolumeTask(context.Context, *ec2.CreateReplaceRootVolumeTaskInput, ...func(*ec2.Options)) (*ec2.CreateReplaceRootVolumeTaskOutput, error)
		CreateTags(context.Context, *ec2.CreateTagsInput, ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error)
		DeleteTags(context.Context, *ec2.DeleteTagsInput, ...func(*ec2.Options)) (*ec2.DeleteTagsOutput, error)
		DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error)
		DescribeInstanceStatus(context.Context, *ec2.DescribeInstanceStatusInput, ...func(*ec2.Options)) (*ec2.DescribeInstanceStatusOutput, error)
		DescribeReplaceRootVolumeTasks(context.Context, *ec2.DescribeReplaceRootVolumeTasksInput, ...func(*ec2.Options)) (*ec2.DescribeReplaceRootVolumeTasksOutput, error)
		DescribeInstanceTypes(context.Context, *ec2.DescribeInstanceTypesInput, ...func(*ec2.Options)) (*ec2.DescribeInstanceTypesOutput, error)
		DescribeInstanceTypeOfferings(context.Context, *ec2.DescribeInstanceTypeOfferingsInput, ...func(*ec2.Options)) (*ec2.DescribeInstanceTypeOfferingsOutput, error)
		DescribeSpotPriceHistory(context.Context, *ec2.DescribeSpotPriceHistoryInput, ...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error)
		DescribeCapacityReservations(context.Context, *ec2.DescribeCapacityReservationsInput, ...func(*ec2.Options)) (*ec2.DescribeCapacityReservationsOutput, error)
	}
	ssmAPI interface {
		SendCommand(context.Context, *ssm.SendCommandInput, ...func(*ssm.Options)) (*ssm.SendCommandOutput, error)
		GetCommandInvocation(context.Context, *ssm.GetCommandInvocationInput, ...func(*ssm.Options)) (*ssm.GetCommandInvocationOutput, error)
	}
	sqsAPI interface {
		ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
		DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	}
	pricingAPI interface {
		GetProducts(context.Context, *pricing.GetProductsInput, ...func(*pricing.Options)) (*pricing.GetProductsOutput, error)
	}
	savingsAPI interface {
		DescribeSavingsPlans(context.Context, *savingsplans.DescribeSavingsPlansInput, ...func(*savingsplans.Options)) (*savingsplans.DescribeSavingsPlansOutput, error)
		DescribeSavingsPlanRates(context.Context, *savingsplans.DescribeSavingsPlanRatesInput, ...func(*savingsplans.Options)) (*savingsplans.DescribeSavingsPlanRatesOutput, error)
	}
)

// cloud is AWS, or a model of it.
type cloud struct {
	region  string
	ec2     ec2API
	ssm     ssmAPI
	sqs     sqsAPI
	pricing pricingAPI
	savings savingsAPI
}

// dial loads credentials from the standard chain, workload identity first, and proves that there are some. Each call is made once:
// the SDK of providers repeats it, under the limits of its name.
func dial(ctx context.Context, region string) (cloud, error) {
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(region), config.WithRetryer(func() awssdk.Retryer { return awssdk.NopRetryer{} }))
	if err != nil {
		return cloud{}, fmt.Errorf("configuration of AWS: %w", err)
	}
	if c.Region == "" {
		return cloud{}, errors.New("--region (region) is missing, and the environment names none")
	}
	if _, err := c.Credentials.Retrieve(ctx); err != nil {
		return cloud{}, fmt.Errorf("no credentials for AWS: give the Pod a role (IRSA or Pod Identity), or AWS_PROFILE, or AWS_ACCESS_KEY_ID: %w", err)
	}
	return cloud{
		region: c.Region, ec2: ec2.NewFromConfig(c), ssm: ssm.NewFromConfig(c), sqs: sqs.NewFromConfig(c), savings: savingsplans.NewFromConfig(c, func(o *savingsplans.Options) {
			o.Region = savingsRegion(c.Region)
		}),
		pricing: pricing.NewFromConfig(c, func(o *pricing.Options) { o.Region = pricingRegion(c.Region) }),
	}, nil
}

// pricingRegion is where the price list of a region is served: three places of the public partition, and one in China. GovCloud
// has no place of its own and is listed in the public partition, which its credentials cannot call: recorded prices serve there.
func pricingRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	}
	return "us-east-1"
}

// savingsRegion is the region of the global endpoint of Savings Plans.
func savingsRegion(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "cn-northwest-1"
	}
	return "us-east-1"
}
