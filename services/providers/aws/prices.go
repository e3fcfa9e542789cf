package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	savingstypes "github.com/aws/aws-sdk-go-v2/service/savingsplans/types"
)

// listAge is how long an on-demand price of the list is used before it is asked for again. AWS changes them a few times a year.
const listAge = 6 * time.Hour

// quotes remembers what AWS said about types and prices.
type quotes struct {
	mu       sync.Mutex
	shapes   map[string]shape
	onDemand map[string]listed
}

type listed struct {
	price  float64
	source string
	at     time.Time
}

// shape is what AWS says about a type. It is asked once for each.
func (b *backend) shape(ctx context.Context, name string) (shape, error) {
	b.quotes.mu.Lock()
	s, known := b.quotes.shapes[name]
	b.quotes.mu.Unlock()
	if known {
		return s, nil
	}
	shapes, err := describeTypes(ctx, b.cloud.ec2, []types.InstanceType{types.InstanceType(name)})
	if err != nil {
		return shape{}, err
	}
	if s, known = shapes[name]; !known {
		return shape{}, fmt.Errorf("EC2 has no instance type %q", name)
	}
	b.quotes.mu.Lock()
	defer b.quotes.mu.Unlock()
	if b.quotes.shapes == nil {
		b.quotes.shapes = map[string]shape{}
	}
	b.quotes.shapes[name] = s
	return s, nil
}

// offerings are those of the start, and the slots that a changed file brought since.
func (b *backend) offerings() []provider.Offering {
	out := slices.Clone(b.Offerings)
	if b.fleet == nil {
		return out
	}
	known := map[string]bool{}
	for _, o := range out {
		known[o.Key()] = true
	}
	for m := range b.fleet.Machines() {
		if m.State == lifecycle.Speculative && !known[m.Offering] {
			known[m.Offering] = true
			out = append(out, provider.Offering{Name: m.Offering, Attributes: m.Attributes})
		}
	}
	return out
}

// Prices implements provider.Pricer: an override, else the market price of spot, the rate of the Savings Plan for reserved offerings
// without a capacity reservation, and the list price. A capacity reservation is paid at the list price, used or not.
func (b *backend) Prices(ctx context.Context, quote func(provider.Quote) error) error {
	offerings, typesOf := b.offerings(), map[provider.CapacityType][]string{}
	for _, o := range offerings {
		if _, own := b.settings.Prices[o.Key()]; !own && !slices.Contains(typesOf[o.CapacityType], o.InstanceType) {
			typesOf[o.CapacityType] = append(typesOf[o.CapacityType], o.InstanceType)
		}
	}
	var all []error
	spot, err := b.spotPrices(ctx, typesOf[provider.Spot])
	all = append(all, err)
	var rates map[string]float64
	if slices.ContainsFunc(offerings, b.bySavingsPlan) {
		rates, err = b.savingsRates(ctx, typesOf[provider.Reserved])
		all = append(all, err)
	}
	now := time.Now()
	for _, o := range offerings {
		key := o.Key()
		q := provider.Quote{Offering: key, InterruptionProbability: b.interruption(o), At: now, Source: "live"}
		known := true
		switch rate, covered := rates[o.InstanceType]; {
		case has(b.settings.Prices, key):
			q.PricePerHour, q.Source = b.settings.Prices[key], "override"
		case o.CapacityType == provider.Spot:
			q.PricePerHour, known = spot[poolKey{instanceType: o.InstanceType, zone: o.Zone}]
		case o.CapacityType == provider.Reserved && b.settings.Reservations[key] == "" && covered:
			q.PricePerHour = rate
		default:
			l, err := b.listPrice(ctx, o.InstanceType)
			all = append(all, err)
			q.PricePerHour, q.At, q.Source, known = l.price, l.at, l.source, l.price > 0
		}
		if !known {
			continue // the last one counts until it is too old
		}
		if err := quote(q); err != nil {
			return err
		}
	}
	return errors.Join(all...)
}

func has(m map[string]float64, key string) bool { _, ok := m[key]; return ok }

// interruption is the chance per hour: from the monthly share of the configuration, else the offering's own.
func (b *backend) interruption(o provider.Offering) float64 {
	if monthly, ok := b.settings.Interruption[o.InstanceType]; ok && o.CapacityType == provider.Spot {
		return hourly(monthly)
	}
	if o.CapacityType == provider.Spot && o.InterruptionProbability == 0 {
		return spotFloor
	}
	return o.InterruptionProbability
}

// linux is how AWS names the operating system in prices of spot.
const linux = "Linux/UNIX"

// spotPrices are the newest market prices by type and zone.
func (b *backend) spotPrices(ctx context.Context, names []string) (map[poolKey]float64, error) {
	out, at := map[poolKey]float64{}, map[poolKey]time.Time{}
	if len(names) == 0 {
		return out, nil
	}
	in := &ec2.DescribeSpotPriceHistoryInput{ProductDescriptions: []string{linux}, StartTime: awssdk.Time(time.Now()), MaxResults: awssdk.Int32(1000)}
	for _, n := range names {
		in.InstanceTypes = append(in.InstanceTypes, types.InstanceType(n))
	}
	for {
		page, err := call(ctx, "ec2.DescribeSpotPriceHistory", func(ctx context.Context) (*ec2.DescribeSpotPriceHistoryOutput, error) {
			return b.cloud.ec2.DescribeSpotPriceHistory(ctx, in)
		})
		if err != nil {
			return out, fmt.Errorf("prices of spot: %w", err)
		}
		for _, p := range page.SpotPriceHistory {
			price, err := strconv.ParseFloat(awssdk.ToString(p.SpotPrice), 64)
			if err != nil {
				return out, fmt.Errorf("price of spot %s in %s: %w", p.InstanceType, awssdk.ToString(p.AvailabilityZone), err)
			}
			k := poolKey{instanceType: string(p.InstanceType), zone: awssdk.ToString(p.AvailabilityZone)}
			if since := awssdk.ToTime(p.Timestamp); !since.Before(at[k]) {
				out[k], at[k] = price, since
			}
		}
		if awssdk.ToString(page.NextToken) == "" {
			return out, nil
		}
		in.NextToken = page.NextToken
	}
}

// listPrice is the on-demand price of a type in the region: from AWS, else the recorded one.
func (b *backend) listPrice(ctx context.Context, name string) (listed, error) {
	b.quotes.mu.Lock()
	known := b.quotes.onDemand[name]
	b.quotes.mu.Unlock()
	if known.source == "live" && time.Since(known.at) < listAge {
		return known, nil
	}
	price, err := b.askListPrice(ctx, name)
	if err == nil {
		known = listed{price, "live", time.Now()}
	} else if pinned := recorded.Prices[b.settings.Region][name]; known.source != "live" && pinned > 0 {
		b.log.Warn("the price list cannot be read; the recorded price is used", "type", name, "recorded", recorded.Recorded, "err", err)
		known, err = listed{pinned, "pinned", time.Now()}, nil
	}
	if err != nil {
		return known, fmt.Errorf("list price of %s: %w", name, err)
	}
	b.quotes.mu.Lock()
	defer b.quotes.mu.Unlock()
	if b.quotes.onDemand == nil {
		b.quotes.onDemand = map[string]listed{}
	}
	b.quotes.onDemand[name] = known
	return known, nil
}

// product is what the price list says about one product, as far as it matters here.
type product struct {
	Terms struct {
		OnDemand map[string]struct {
			PriceDimensions map[string]struct {
				Unit         string            `json:"unit"`
				PricePerUnit map[string]string `json:"pricePerUnit"`
			} `json:"priceDimensions"`
		} `json:"OnDemand"`
	} `json:"terms"`
}

func (b *backend) askListPrice(ctx context.Context, name string) (float64, error) {
	in := &pricing.GetProductsInput{ServiceCode: awssdk.String("AmazonEC2"), MaxResults: awssdk.Int32(10)}
	for field, value := range map[string]string{
		"regionCode": b.settings.Region, "instanceType": name, "operatingSystem": "Linux", "preInstalledSw": "NA", "tenancy": "Shared",
		"capacitystatus": "Used", "marketoption": "OnDemand",
	} {
		in.Filters = append(in.Filters, pricingtypes.Filter{Type: pricingtypes.FilterTypeTermMatch, Field: awssdk.String(field), Value: awssdk.String(value)})
	}
	out, err := call(ctx, "pricing.GetProducts", func(ctx context.Context) (*pricing.GetProductsOutput, error) {
		return b.cloud.pricing.GetProducts(ctx, in)
	})
	if err != nil {
		return 0, err
	}
	for _, text := range out.PriceList {
		var p product
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return 0, fmt.Errorf("the price list is not as documented: %w", err)
		}
		for _, term := range p.Terms.OnDemand {
			for _, d := range term.PriceDimensions {
				price, err := strconv.ParseFloat(d.PricePerUnit["USD"], 64)
				if err == nil && price > 0 && d.Unit == "Hrs" {
					return price, nil
				}
			}
		}
	}
	return 0, fmt.Errorf("the list has no price in USD per hour for %s in %s; give price_overrides", name, b.settings.Region)
}

// savingsRates are the rates per hour that active Savings Plans of the account charge by type, the lowest where several apply.
func (b *backend) savingsRates(ctx context.Context, names []string) (map[string]float64, error) {
	out := map[string]float64{}
	plans, err := b.savingsPlans(ctx)
	if err != nil {
		return out, err
	}
	for _, p := range plans {
		in := &savingsplans.DescribeSavingsPlanRatesInput{SavingsPlanId: p.SavingsPlanId, Filters: []savingstypes.SavingsPlanRateFilter{
			{Name: savingstypes.SavingsPlanRateFilterNameRegion, Values: []string{b.settings.Region}},
			{Name: savingstypes.SavingsPlanRateFilterNameProductDescription, Values: []string{linux}},
			{Name: savingstypes.SavingsPlanRateFilterNameTenancy, Values: []string{"shared"}},
			{Name: savingstypes.SavingsPlanRateFilterNameInstanceType, Values: names},
		}}
		for {
			page, err := call(ctx, "savingsplans.DescribeSavingsPlanRates", func(ctx context.Context) (*savingsplans.DescribeSavingsPlanRatesOutput, error) {
				return b.cloud.savings.DescribeSavingsPlanRates(ctx, in)
			})
			if err != nil {
				return out, fmt.Errorf("rates of Savings Plan %s: %w", awssdk.ToString(p.SavingsPlanId), err)
			}
			for _, r := range page.SearchResults {
				name := ""
				for _, property := range r.Properties {
					if property.Name == savingstypes.SavingsPlanRatePropertyKeyInstanceType {
						name = awssdk.ToString(property.Value)
					}
				}
				// A usage type without "BoxUsage" is unused reservations and dedicated hosts.
				rate, err := strconv.ParseFloat(awssdk.ToString(r.Rate), 64)
				if err != nil || !strings.Contains(awssdk.ToString(r.UsageType), "BoxUsage") || r.Currency != savingstypes.CurrencyCodeUsd {
					continue
				}
				if before, ok := out[name]; !ok || rate < before {
					out[name] = rate
				}
			}
			if awssdk.ToString(page.NextToken) == "" {
				break
			}
			in.NextToken = page.NextToken
		}
	}
	return out, nil
}

// bySavingsPlan says that a reserved offering names no capacity reservation, so it stands for the commitment of a Savings Plan.
func (b *backend) bySavingsPlan(o provider.Offering) bool {
	return o.CapacityType == provider.Reserved && b.settings.Reservations[o.Key()] == ""
}

func (b *backend) savingsPlans(ctx context.Context) ([]savingstypes.SavingsPlan, error) {
	out, err := call(ctx, "savingsplans.DescribeSavingsPlans", func(ctx context.Context) (*savingsplans.DescribeSavingsPlansOutput, error) {
		return b.cloud.savings.DescribeSavingsPlans(ctx, &savingsplans.DescribeSavingsPlansInput{
			States: []savingstypes.SavingsPlanState{savingstypes.SavingsPlanStateActive}, MaxResults: awssdk.Int32(1000),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("Savings Plans of the account: %w", err)
	}
	return out.SavingsPlans, nil
}

// typesMax is how many types one call may name.
const typesMax = 100

func describeTypes(ctx context.Context, api ec2API, names []types.InstanceType) (map[string]shape, error) {
	out := map[string]shape{}
	for part := range slices.Chunk(names, typesMax) {
		page, err := call(ctx, "ec2.DescribeInstanceTypes", func(ctx context.Context) (*ec2.DescribeInstanceTypesOutput, error) {
			return api.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: part})
		})
		if err != nil {
			return nil, fmt.Errorf("describe the instance types: %w", err)
		}
		for _, i := range page.InstanceTypes {
			out[string(i.InstanceType)] = shapeOf(i)
		}
	}
	return out, nil
}
