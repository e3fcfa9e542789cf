package provider

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/otlp"

	"go.yaml.in/yaml/v3"
)

// Common is the part of the configuration file that all providers share (PROV-20.2). Durations are written like "90s" or
// "5m".
type Common struct {
	Provider    string `yaml:"provider" doc:"Name of this provider. It is the prefix of each machine id and the value of host.provider."`
	Addr        string `yaml:"addr" doc:"Listen address of the RPC port."`
	MetricsAddr string `yaml:"metrics_addr" doc:"Listen address of /metrics, /healthz and /readyz; \"0\" or empty turns it off."`
	DataDir     string `yaml:"data_dir" doc:"Directory of the state file. Used when state is empty."`
	State       string `yaml:"state" doc:"Path of the state file. \"memory\" keeps the state in memory and loses it when the process ends."`

	OfferingsFile string            `yaml:"offerings_file" doc:"File with a list of offerings under the key offerings. Reloaded when it changes and on SIGHUP."`
	Offerings     []OfferingSection `yaml:"offerings" doc:"The quota: what the provider may create, by type, zone and count."`
	SeedCount     int               `yaml:"seed_count" doc:"Number of slots to take from the built-in catalogue when no offerings are given."`
	ControlAddr   string            `yaml:"control_addr" doc:"Listen address of SubstrateControl, which steers a simulated substrate; empty turns it off."`
	UseFake       bool              `yaml:"use_fake_backend" doc:"Use the simulated cloud instead of the real one."`

	ReconcileInterval time.Duration `yaml:"reconcile_interval" doc:"How often the provider lists the hosts of the substrate."`
	DescribeTimeout   time.Duration `yaml:"describe_timeout" doc:"Time limit of one listing of the hosts."`
	LossRounds        int           `yaml:"loss_rounds" doc:"A host is lost after it is missing from this many complete listings in a row."`
	Recovery          string        `yaml:"recovery" doc:"What to do at start with transitions that the last stop interrupted: fail or resume."`
	Janitor           string        `yaml:"janitor" doc:"Whether FAILED machines and orphaned hosts are removed automatically: on or off."`
	AdoptStore        string        `yaml:"adopt_store" doc:"Id of a lost store. The provider adopts the hosts that carry it."`
	ShutdownGrace     time.Duration `yaml:"shutdown_grace" doc:"How long running transitions may continue after the process gets a signal to stop."`

	Timeouts  TimeoutSection         `yaml:"timeouts" doc:"Time limits of transitions."`
	Retention RetentionSection       `yaml:"retention" doc:"How long the janitor keeps records and hosts before it removes them."`
	Prices    PriceSection           `yaml:"prices" doc:"How prices are refreshed, for providers that quote prices."`
	Limits    LimitSection           `yaml:"limits" doc:"Limits on concurrent and queued work."`
	Calls     map[string]CallSection `yaml:"calls" doc:"Limits on calls to the substrate, by call name."`
	TLS       TLSSection             `yaml:"tls" doc:"mTLS of the RPC port. Set all three files or none."`
	Log       LogSection             `yaml:"log" doc:"Logging to stderr."`
	// OTLPEndpoint is where spans go; empty for nowhere.
	OTLPEndpoint string        `yaml:"otlp_endpoint" doc:"OTLP gRPC endpoint for traces: host:port or http(s)://host:port. Empty turns traces off."`
	Server       ServerSection `yaml:"server" doc:"Optional services of the ports."`
}

// OfferingSection is one offering of the file.
type OfferingSection struct {
	Name                    string            `yaml:"name" doc:"Name of the offering, which is part of each machine id. Derived from the other fields when empty."`
	InstanceType            string            `yaml:"instance_type" doc:"Instance type."`
	Zone                    string            `yaml:"zone" doc:"Availability zone."`
	Zones                   []string          `yaml:"zones" doc:"Several zones, instead of zone. Each zone gets count slots."`
	CapacityType            string            `yaml:"capacity_type" doc:"Capacity type: bare_metal, reserved, on_demand or spot."`
	Count                   int               `yaml:"count" doc:"Number of slots."`
	PricePerHour            float64           `yaml:"price_per_hour" doc:"Price in US dollars per hour. Use 0 only for capacity without a price."`
	InterruptionProbability float64           `yaml:"interruption_probability" doc:"Probability of an interruption per hour, 0 to 1. Must be above 0 for spot."`
	Resources               map[string]string `yaml:"resources" doc:"Resources that Pods can request, as resource name to quantity."`
	Allocatable             map[string]string `yaml:"allocatable" doc:"Resources that the kubelet will report as allocatable. Defaults to resources."`
	Labels                  map[string]string `yaml:"labels" doc:"Labels that the node joins with. kubernetes.io/os defaults to linux and kubernetes.io/arch to amd64."`
	Taints                  []TaintSection    `yaml:"taints" doc:"Taints that the node registers with."`
	DrainEstimate           time.Duration     `yaml:"drain_estimate" doc:"How long a drain usually takes, from its acceptance until the machine is idle. 0 takes the provider's own estimate."`
}

// TaintSection is one taint.
type TaintSection struct {
	Key    string `yaml:"key" doc:"Key of the taint."`
	Value  string `yaml:"value" doc:"Value of the taint."`
	Effect string `yaml:"effect" doc:"Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute."`
}

// TimeoutSection is Timeouts.
type TimeoutSection struct {
	Create     time.Duration `yaml:"create" doc:"Time limit of Create."`
	Configure  time.Duration `yaml:"configure" doc:"Time limit of Configure, including the wait for the node."`
	Delete     time.Duration `yaml:"delete" doc:"Time limit of Delete."`
	DrainExtra time.Duration `yaml:"drain_extra" doc:"Time limit of Drain, added to its grace period."`
}

// RetentionSection is Retention.
type RetentionSection struct {
	Failed   time.Duration `yaml:"failed" doc:"How long a FAILED machine is kept before it is retired."`
	Lost     time.Duration `yaml:"lost" doc:"How long the record of a lost host is kept before it is retired."`
	Stockout time.Duration `yaml:"stockout" doc:"How long a slot is withdrawn after a stock-out."`
	Orphan   time.Duration `yaml:"orphan" doc:"How long a host without a record is left alone before it is torn down."`
}

// PriceSection is WithPrices.
type PriceSection struct {
	Interval time.Duration `yaml:"interval" doc:"How often prices are fetched."`
	AgeMax   time.Duration `yaml:"age_max" doc:"Largest age of a price. When it is exceeded, the slots of that offering are withdrawn; 0 means never."`
}

// LimitSection is WithTransitionLimits and WithTombstones.
type LimitSection struct {
	Transitions  int           `yaml:"transitions" doc:"Most transitions that run concurrently."`
	Queue        int           `yaml:"queue" doc:"Most transitions that may wait in the queue."`
	Tombstones   int           `yaml:"tombstones" doc:"Most removed machines that are remembered."`
	TombstoneTTL time.Duration `yaml:"tombstone_ttl" doc:"How long a removed machine is remembered."`
}

// CallSection is CallLimit.
type CallSection struct {
	Parallel  int     `yaml:"parallel" doc:"Most concurrent calls."`
	PerSecond float64 `yaml:"per_second" doc:"Most calls per second; 0 means no limit."`
	Burst     int     `yaml:"burst" doc:"Most calls in one burst under the rate limit."`
}

// TLSSection names the files.
type TLSSection struct {
	Cert     string `yaml:"cert" doc:"Path of the certificate (PEM)."`
	Key      string `yaml:"key" doc:"Path of the private key (PEM)."`
	CA       string `yaml:"ca" doc:"Path of the CA bundle (PEM) that verifies peers, in both directions."`
	Require  bool   `yaml:"require" doc:"Refuse to start without TLS."`
	ShardSAN bool   `yaml:"shard_san" doc:"Require each peer's certificate to have the SAN bigfleet://shard/<id> of the shard that it acts for."`
}

// LogSection is the logger.
type LogSection struct {
	Level  string `yaml:"level" doc:"Log level: debug, info, warn or error."`
	Format string `yaml:"format" doc:"Log format: text or json."`
}

// ServerSection is what the ports serve besides.
type ServerSection struct {
	Reflection bool `yaml:"reflection" doc:"Serve gRPC reflection on the RPC port."`
	Pprof      bool `yaml:"pprof" doc:"Serve pprof profiles on the metrics port, to loopback callers only."`
}

// DefaultCommon is the common part without any file, environment or flag.
func DefaultCommon(name string) Common {
	d := defaults()
	t, r := Timeouts{}.withDefaults(), Retention{}.withDefaults()
	return Common{
		Provider: name, Addr: ":9000", MetricsAddr: ":9090", DataDir: ".",
		ReconcileInterval: d.reconcile, DescribeTimeout: d.describe, LossRounds: d.lossRounds, Recovery: "fail", Janitor: "on",
		ShutdownGrace: d.shutdownGrace,
		Timeouts:      TimeoutSection(t),
		Retention:     RetentionSection(r),
		Prices:        PriceSection{d.prices, d.priceAgeMax},
		Limits:        LimitSection{d.transitions, d.queue, d.tombstones, d.tombstoneTTL},
		TLS:           TLSSection{ShardSAN: true}, Log: LogSection{"info", "text"}, Server: ServerSection{Reflection: true},
	}
}

// StateFile is where the state is kept, empty for memory (PROV-20.6).
func (c Common) StateFile() string {
	switch c.State {
	case "memory":
		return ""
	case "":
		return filepath.Join(c.DataDir, "provider.db")
	}
	return c.State
}

// Options turns the common part into options. Offerings are not among them, because a program may fill them in first.
func (c Common) Options() ([]Option, error) {
	var all []error
	if c.Recovery != "fail" && c.Recovery != "resume" {
		all = append(all, fmt.Errorf("recovery: %q is neither fail nor resume", c.Recovery))
	}
	if c.Janitor != "on" && c.Janitor != "off" {
		all = append(all, fmt.Errorf("janitor: %q is neither on nor off", c.Janitor))
	}
	if c.SeedCount < 0 {
		all = append(all, fmt.Errorf("seed_count: %d must be at least 0", c.SeedCount))
	}
	if c.SeedCount > seedCountMax {
		all = append(all, fmt.Errorf("seed_count: %d is too large; the maximum is %d", c.SeedCount, seedCountMax))
	}
	if c.ReconcileInterval > reconcileMax {
		all = append(all, fmt.Errorf("reconcile_interval: %s is too long; the maximum is %s", c.ReconcileInterval, reconcileMax))
	}
	if id, err := hex.DecodeString(c.AdoptStore); err != nil || len(id) != 0 && len(id) != 16 {
		all = append(all, fmt.Errorf("adopt_store: %q is not the id of a store; an id has 32 hexadecimal digits, and the log of the provider that does not become ready names it", c.AdoptStore))
	}
	for _, a := range []struct{ name, addr string }{{"addr", c.Addr}, {"metrics_addr", c.MetricsAddr}, {"control_addr", c.ControlAddr}} {
		if err := checkAddress(a.addr); err != nil && a.addr != "" && (a.addr != "0" || a.name == "addr") {
			all = append(all, fmt.Errorf("%s: %w", a.name, err))
		}
	}
	if c.OTLPEndpoint != "" {
		if _, err := otlp.Endpoint(c.OTLPEndpoint); err != nil {
			all = append(all, fmt.Errorf("otlp_endpoint: %w", err))
		}
	}
	calls := map[string]CallLimit{}
	for name, l := range c.Calls {
		calls[name] = CallLimit(l)
	}
	out := []Option{
		WithAddr(c.Addr), WithReconcileInterval(c.ReconcileInterval), WithDescribeTimeout(c.DescribeTimeout),
		WithLossRounds(c.LossRounds), WithResume(c.Recovery == "resume"), WithJanitor(c.Janitor == "on"),
		WithAdoptStore(c.AdoptStore), WithShutdownGrace(c.ShutdownGrace),
		WithTimeouts(Timeouts{c.Timeouts.Create, c.Timeouts.Configure, c.Timeouts.Delete, c.Timeouts.DrainExtra}),
		WithRetention(Retention{c.Retention.Failed, c.Retention.Lost, c.Retention.Stockout, c.Retention.Orphan}),
		WithPrices(c.Prices.Interval, c.Prices.AgeMax), WithTransitionLimits(c.Limits.Transitions, c.Limits.Queue),
		WithTombstones(c.Limits.Tombstones, c.Limits.TombstoneTTL), WithCallLimits(calls),
		WithTLS(c.Files()), WithRequireTLS(c.TLS.Require),
		WithShardSAN(c.TLS.ShardSAN), WithReflection(c.Server.Reflection),
	}
	if file := c.StateFile(); file != "" {
		out = append(out, WithStateFile(file))
	} else {
		out = append(out, withMemory())
	}
	return out, errors.Join(all...)
}

// checkAddress tells what keeps an address from being listened at, whatever else runs on the machine.
func checkAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not an address; write HOST:PORT or :PORT, with a port up to 65535", addr)
	}
	return nil
}

// offeringsOf turns the sections into offerings, one per zone.
func offeringsOf(sections []OfferingSection) ([]Offering, error) {
	classes := map[string]CapacityType{"bare_metal": BareMetal, "reserved": Reserved, "on_demand": OnDemand, "spot": Spot}
	var out []Offering
	var all []error
	for i, s := range sections {
		class, ok := classes[s.CapacityType]
		if !ok {
			all = append(all, fmt.Errorf("offerings[%d]: capacity_type %q is unknown; use bare_metal, reserved, on_demand or spot", i, s.CapacityType))
		}
		zones := s.Zones
		if len(zones) == 0 {
			zones = []string{s.Zone}
		} else if s.Zone != "" {
			all = append(all, fmt.Errorf("offerings[%d]: give zone or zones, not both", i))
		}
		for _, zone := range zones {
			o := Offering{Name: s.Name, Count: s.Count, Attributes: Attributes{
				InstanceType: s.InstanceType, Zone: zone, CapacityType: class, PricePerHour: s.PricePerHour,
				InterruptionProbability: s.InterruptionProbability, Resources: s.Resources, Allocatable: s.Allocatable, Labels: s.Labels,
				DrainEstimate: s.DrainEstimate,
			}}
			if len(s.Zones) > 0 && s.Name != "" {
				o.Name = s.Name + "-" + zone
			}
			for _, t := range s.Taints {
				o.Taints = append(o.Taints, Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
			}
			out = append(out, o)
		}
	}
	return out, errors.Join(all...)
}

// ReadOfferings reads a file with a list under the key offerings.
func ReadOfferings(file string) ([]Offering, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("offerings: %w", err)
	}
	var doc struct {
		Offerings []OfferingSection `yaml:"offerings"`
	}
	if err := decodeStrict(b, &doc); err != nil {
		return nil, fmt.Errorf("offerings file %s: %w", file, err)
	}
	list, err := offeringsOf(doc.Offerings)
	if err != nil {
		return nil, fmt.Errorf("offerings file %s: %w", file, err)
	}
	return list, nil
}

// decodeStrict refuses unknown keys; errors carry the line.
func decodeStrict(b []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	err := d.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		for i, line := range wrong.Errors { // the type is an internal name that a reader cannot look up
			wrong.Errors[i] = unknownKey.ReplaceAllString(line, "$1 is not a key of this file; --print-schema lists the keys")
		}
		return errors.New(strings.Join(wrong.Errors, "; ")) // one line: callers print no more
	}
	return err
}

var unknownKey = regexp.MustCompile(`field (\S+) not found in type .*`)

// Files are the TLS files of the configuration.
func (c Common) Files() identity.Files {
	return identity.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA}
}
