package aws

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// selection is what the offerings are for.
type selection struct {
	region                 string
	types, zones, capacity []string
	count                  int
	offline                bool
}

// offeringsCommand writes offerings with the shapes and prices that AWS has, for --offerings and for the chart's values.
func offeringsCommand() *cobra.Command {
	var w selection
	cmd := &cobra.Command{
		Use: "offerings", Short: "Print offerings of EC2 for the configuration file, with shapes and prices",
		Long: "Print offerings of EC2 for the configuration file. Shapes and prices come from AWS; with --offline they come from the\n" +
			"recorded table in this program, which has few types and regions and states its date.",
		Example: "  bigfleet-provider-aws offerings --region eu-west-1 --types m5.large,c6g.large --zones eu-west-1a,eu-west-1b --count 50",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			return w.print(ctx, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.region, "region", "", "region")
	f.StringSliceVar(&w.types, "types", nil, "instance types")
	f.StringSliceVar(&w.zones, "zones", nil, "availability zones")
	f.StringSliceVar(&w.capacity, "capacity-types", []string{"on_demand", "spot"}, "on_demand, spot")
	f.IntVar(&w.count, "count", 20, "slots of each offering")
	f.BoolVar(&w.offline, "offline", false, "use recorded shapes and prices; make no call to AWS")
	for _, name := range []string{"region", "types", "zones"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag of this function
		}
	}
	return cmd
}

func (w selection) print(ctx context.Context, out io.Writer) error {
	sections, note, err := w.sections(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# %s\n", note)
	encoder := yaml.NewEncoder(out)
	encoder.SetIndent(2)
	if err := encoder.Encode(map[string]any{"offerings": sections}); err != nil {
		return err
	}
	return encoder.Close()
}

// section is an offering as the file has it, without the keys that are not set.
type section struct {
	Name         string            `yaml:"name"`
	InstanceType string            `yaml:"instance_type"`
	Zone         string            `yaml:"zone"`
	CapacityType string            `yaml:"capacity_type"`
	Count        int               `yaml:"count"`
	Price        float64           `yaml:"price_per_hour"`
	Interruption float64           `yaml:"interruption_probability,omitempty"`
	Resources    map[string]string `yaml:"resources"`
	Allocatable  map[string]string `yaml:"allocatable"`
	Labels       map[string]string `yaml:"labels"`
}

// sections are the offerings in the order of the flags. note says where the numbers come from.
func (w selection) sections(ctx context.Context) (out []section, note string, err error) {
	shapes, price, note, err := w.ask(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, name := range w.types {
		s, ok := shapes[name]
		if !ok {
			return nil, "", fmt.Errorf("no shape is recorded for %s; there are shapes for %s", name, strings.Join(slices.Sorted(maps.Keys(shapes)), ", "))
		}
		for _, capacity := range w.capacity {
			if capacity != "spot" && capacity != "on_demand" {
				return nil, "", fmt.Errorf("--capacity-types: %q is neither on_demand nor spot", capacity)
			}
			if capacity == "spot" && (!s.Spot || s.LocalDiskGB > 0) {
				continue // local disks of spot cannot be erased between two clusters
			}
			for _, zone := range w.zones {
				p, err := price(name, zone, capacity)
				if err != nil {
					return nil, "", err
				}
				one := section{
					Name: strings.ReplaceAll(name, ".", "-") + "-" + zone + "-" + capacity, InstanceType: name, Zone: zone, CapacityType: capacity, Count: w.count,
					Price: p, Resources: s.resources(), Allocatable: s.allocatable(),
					Labels: map[string]string{"topology.kubernetes.io/region": w.region, "kubernetes.io/arch": s.kubernetesArch()},
				}
				one.Name = strings.ReplaceAll(one.Name, "_", "-")
				if capacity == "spot" {
					one.Interruption = spotFloor
				}
				out = append(out, one)
			}
		}
	}
	return out, note, nil
}

// pricer is the price of a type in a zone.
type pricer func(name, zone, capacity string) (float64, error)

func (w selection) ask(ctx context.Context) (map[string]shape, pricer, string, error) {
	if w.offline {
		list := recorded.Prices[w.region]
		if list == nil {
			return nil, nil, "", fmt.Errorf("no prices are recorded for %s; there are prices for %s", w.region, strings.Join(slices.Sorted(maps.Keys(recorded.Prices)), ", "))
		}
		note := fmt.Sprintf("Recorded on %s by %s. Spot has the on-demand price here; run without --offline for spot prices.", recorded.Recorded, recorded.Source)
		return recorded.Types, func(name, _, _ string) (float64, error) {
			if list[name] == 0 {
				return 0, fmt.Errorf("no price is recorded for %s in %s", name, w.region)
			}
			return list[name], nil
		}, note, nil
	}
	api, err := dial(ctx, w.region)
	if err != nil {
		return nil, nil, "", err
	}
	return w.askCloud(ctx, api)
}

func (w selection) askCloud(ctx context.Context, api cloud) (map[string]shape, pricer, string, error) {
	b := &backend{Config: Config{cloud: api, settings: settings{Region: w.region}}, log: discard}
	var names []types.InstanceType
	for _, n := range w.types {
		names = append(names, types.InstanceType(n))
	}
	shapes, err := describeTypes(ctx, api.ec2, names)
	if err != nil {
		return nil, nil, "", err
	}
	spot, err := b.spotPrices(ctx, w.types)
	if err != nil {
		return nil, nil, "", err
	}
	return shapes, func(name, zone, capacity string) (float64, error) {
		if capacity == "spot" {
			p, ok := spot[poolKey{instanceType: name, zone: zone}]
			if !ok {
				return 0, fmt.Errorf("AWS has no spot price for %s in %s: leave it out", name, zone)
			}
			return p, nil
		}
		l, err := b.listPrice(ctx, name)
		return l.price, err
	}, "Read from AWS on " + time.Now().UTC().Format(time.DateOnly) + ".", nil
}

// discard is for work that no program runs.
var discard = slog.New(slog.DiscardHandler)
