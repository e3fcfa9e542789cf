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
	Provider    string `yaml:"provider" doc:"Name of this provider: begins every machine id and is host.provider."`
	Addr        string `yaml:"addr" doc:"Address of the RPC port."`
	MetricsAddr string `yaml:"metrics_addr" doc:"Address of /metrics, /healthz and /readyz; \"0\" or empty for none."`
	DataDir     string `yaml:"data_dir" doc:"Directory of the state file, when state is not given."`
	State       string `yaml:"state" doc:"State file, or \"memory\" to forget everything at the end of the process."`

	OfferingsFile string            `yaml:"offerings_file" doc:"File with a list under the key offerings; read again when it changes and on SIGHUP."`
	Offerings     []OfferingSection `yaml:"offerings" doc:"The quota: which slots there are."`
	SeedCount     int               `yaml:"seed_count" doc:"Number of slots from the built-in catalogue when there are no offerings."`
	ControlAddr   string            `yaml:"control_addr" doc:"Address of SubstrateControl, where the substrate is a pretended one; empty for none."`
	UseFake       bool              `yaml:"use_fake_backend" doc:"Run against the fake substrate instead of the real one."`

	ReconcileInterval time.Duration `yaml:"reconcile_interval" doc:"How often the hosts are described."`
	DescribeTimeout   time.Duration `yaml:"describe_timeout" doc:"Limit of one description."`
	LossRounds        int           `yaml:"loss_rounds" doc:"Complete rounds without a host before it is lost."`
	Recovery          string        `yaml:"recovery" doc:"What happens at start to transitions that the last stop cut off: fail or resume."`
	Janitor           string        `yaml:"janitor" doc:"on or off: whether FAILED machines and orphans are ended by themselves."`
	AdoptStore        string        `yaml:"adopt_store" doc:"Id of a lost store whose hosts are taken over."`
	ShutdownGrace     time.Duration `yaml:"shutdown_grace" doc:"How long running work may go on after a stop."`

	Timeouts  TimeoutSection         `yaml:"timeouts" doc:"Limits of the transitions."`
	Retention RetentionSection       `yaml:"retention" doc:"How the janitor ages things."`
	Prices    PriceSection           `yaml:"prices" doc:"Refresh of prices, where the provider quotes them."`
	Limits    LimitSection           `yaml:"limits" doc:"How much runs at once."`
	Calls     map[string]CallSection `yaml:"calls" doc:"Limits of substrate calls by name."`
	TLS       TLSSection             `yaml:"tls" doc:"mTLS of the RPC port: all three files or none."`
	Log       LogSection             `yaml:"log" doc:"Logs on stderr."`
	// OTLPEndpoint is where spans go; empty for nowhere.
	OTLPEndpoint string        `yaml:"otlp_endpoint" doc:"OTLP gRPC endpoint for traces: host:port or http(s)://host:port; empty for none."`
	Server       ServerSection `yaml:"server" doc:"Extras of the ports."`
}

// OfferingSection is one offering of the file.
type OfferingSection struct {
	Name                    string            `yaml:"name" doc:"Key, part of every machine id; made from the other fields when empty."`
	InstanceType            string            `yaml:"instance_type" doc:"Type."`
	Zone                    string            `yaml:"zone" doc:"Zone."`
	Zones                   []string          `yaml:"zones" doc:"Several zones, instead of zone: count slots in each."`
	CapacityType            string            `yaml:"capacity_type" doc:"bare_metal, reserved, on_demand or spot."`
	Count                   int               `yaml:"count" doc:"Number of slots."`
	PricePerHour            float64           `yaml:"price_per_hour" doc:"US dollars per hour; 0 only for capacity that nobody bills."`
	InterruptionProbability float64           `yaml:"interruption_probability" doc:"Chance per hour, 0 to 1; above 0 for spot."`
	Resources               map[string]string `yaml:"resources" doc:"Request shape: resource name to quantity."`
	Allocatable             map[string]string `yaml:"allocatable" doc:"What a kubelet will report; empty means the same as resources."`
	Labels                  map[string]string `yaml:"labels" doc:"Labels that the node joins with. kubernetes.io/os is linux and kubernetes.io/arch is amd64 unless stated."`
	Taints                  []TaintSection    `yaml:"taints" doc:"Taints that the node registers with."`
	DrainEstimate           time.Duration     `yaml:"drain_estimate" doc:"How long a drain usually takes, from its acceptance to idle; 0 for what the provider knows."`
}

// TaintSection is one taint.
type TaintSection struct {
	Key    string `yaml:"key" doc:"Key."`
	Value  string `yaml:"value" doc:"Value."`
	Effect string `yaml:"effect" doc:"NoSchedule, PreferNoSchedule or NoExecute."`
}

// TimeoutSection is Timeouts.
type TimeoutSection struct {
	Create     time.Duration `yaml:"create" doc:"Limit of Create."`
	Configure  time.Duration `yaml:"configure" doc:"Limit of Configure, the wait for the node included."`
	Delete     time.Duration `yaml:"delete" doc:"Limit of Delete."`
	DrainExtra time.Duration `yaml:"drain_extra" doc:"Limit of Drain beyond its grace."`
}

// RetentionSection is Retention.
type RetentionSection struct {
	Failed   time.Duration `yaml:"failed" doc:"Age of a FAILED machine before it is retired."`
	Lost     time.Duration `yaml:"lost" doc:"Age of a lost host's record before it is retired."`
	Stockout time.Duration `yaml:"stockout" doc:"Pause before a slot is offered again after a stock-out."`
	Orphan   time.Duration `yaml:"orphan" doc:"Age of a host that no record has before it is torn down."`
}

// PriceSection is WithPrices.
type PriceSection struct {
	Interval time.Duration `yaml:"interval" doc:"How often prices are asked for."`
	AgeMax   time.Duration `yaml:"age_max" doc:"Age of a price before the slots of its offering are withdrawn; 0 for never."`
}

// LimitSection is WithTransitionLimits and WithTombstones.
type LimitSection struct {
	Transitions  int           `yaml:"transitions" doc:"Transitions that run at once."`
	Queue        int           `yaml:"queue" doc:"Transitions that may wait."`
	Tombstones   int           `yaml:"tombstones" doc:"Removals that are remembered."`
	TombstoneTTL time.Duration `yaml:"tombstone_ttl" doc:"How long removals are remembered."`
}

// CallSection is CallLimit.
type CallSection struct {
	Parallel  int     `yaml:"parallel" doc:"Calls at once."`
	PerSecond float64 `yaml:"per_second" doc:"Rate limit; 0 for none."`
	Burst     int     `yaml:"burst" doc:"Calls that may come at once under the rate limit."`
}

// TLSSection names the files.
type TLSSection struct {
	Cert     string `yaml:"cert" doc:"Certificate, PEM."`
	Key      string `yaml:"key" doc:"Private key, PEM."`
	CA       string `yaml:"ca" doc:"CA bundle for both directions, PEM."`
	Require  bool   `yaml:"require" doc:"Refuse to start in plaintext."`
	ShardSAN bool   `yaml:"shard_san" doc:"Peers need the SAN bigfleet://shard/<id> of the shard they speak for."`
}

// LogSection is the logger.
type LogSection struct {
	Level  string `yaml:"level" doc:"debug, info, warn or error."`
	Format string `yaml:"format" doc:"text or json."`
}

// ServerSection is what the ports serve besides.
type ServerSection struct {
	Reflection bool `yaml:"reflection" doc:"gRPC reflection on the RPC port."`
	Pprof      bool `yaml:"pprof" doc:"Profiles on the metrics port, for loopback callers."`
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
		all = append(all, fmt.Errorf("seed_count: %d is not a number of slots", c.SeedCount))
	}
	if c.SeedCount > seedCountMax {
		all = append(all, fmt.Errorf("seed_count: %d is too many; the largest number is %d", c.SeedCount, seedCountMax))
	}
	if c.ReconcileInterval > reconcileMax {
		all = append(all, fmt.Errorf("reconcile_interval: %s is too long; the longest is %s", c.ReconcileInterval, reconcileMax))
	}
	if id, err := hex.DecodeString(c.AdoptStore); err != nil || len(id) != 0 && len(id) != 16 {
		all = append(all, fmt.Errorf("adopt_store: %q is not the id of a store; the id is 32 hexadecimal digits, and the provider that does not become ready names it", c.AdoptStore))
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

// offerings turns the sections into offerings, one per zone.
func offeringsOf(sections []OfferingSection) ([]Offering, error) {
	classes := map[string]CapacityType{"bare_metal": BareMetal, "reserved": Reserved, "on_demand": OnDemand, "spot": Spot}
	var out []Offering
	var all []error
	for i, s := range sections {
		class, ok := classes[s.CapacityType]
		if !ok {
			all = append(all, fmt.Errorf("offerings[%d]: capacity_type %q is none of bare_metal, reserved, on_demand, spot", i, s.CapacityType))
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
			wrong.Errors[i] = unknownKey.ReplaceAllString(line, "$1 is no key of this file; --print-schema lists them")
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
