package sim

import (
	"errors"
	"fmt"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
)

// World is how the simulated cloud behaves. Zero fields take the preset's values.
type World struct {
	Preset string `yaml:"preset" doc:"Preset for all settings that are not given: calm, lively or storm."`
	Seed   int64  `yaml:"seed" doc:"Seed of all random draws. The same seed gives the same world."`
	// TimeScale is simulated seconds per second, 1 to 10,000.
	TimeScale float64                      `yaml:"time_scale" doc:"Simulated seconds per real second, 1 to 10000; 0 means 1."`
	Latency   map[string]substrate.Latency `yaml:"latency" doc:"Latency by call: Create, Configure, Ready, Drain, Delete or Describe. An empty name sets the latency of all other calls."`
	Failures  map[string]float64           `yaml:"failures" doc:"Probability that a call fails permanently, by call."`
	Transient map[string]float64           `yaml:"transient" doc:"Probability that a call fails with an error that may be retried, by call."`
	Market    Market                       `yaml:"market" doc:"The spot market: prices and interruptions."`
	Stock     []Stock                      `yaml:"stock" doc:"Pools that have less stock than quota. The first entry that matches a pool applies."`
	NoDelete  bool                         `yaml:"no_delete" doc:"Machines cannot be returned to the provider, as with owned hardware."`
}

// Market is the spot market.
type Market struct {
	Moving        *bool         `yaml:"moving" doc:"Whether spot prices change over time."`
	Interruptions *bool         `yaml:"interruptions" doc:"Whether spot machines are interrupted, with the declared probability."`
	Step          time.Duration `yaml:"step" doc:"Simulated time between two steps of the market."`
	Volatility    float64       `yaml:"volatility" doc:"Standard deviation of one step, as a share of the price."`
	Notice        time.Duration `yaml:"notice" doc:"Simulated time between the notice of an interruption and the end of the host."`
	// Recovery is how many hosts an hour a pool with hidden stock gets back.
	Recovery float64 `yaml:"recovery" doc:"Hosts per hour that become available again in a pool below its quota."`
	// OutagesPerDay draws outages of whole zones.
	OutagesPerDay float64       `yaml:"outages_per_day" doc:"Zone outages per simulated day, over all zones."`
	Outage        time.Duration `yaml:"outage" doc:"Duration of a zone outage, in simulated time."`
}

// Stock hides capacity: quota is not a promise.
type Stock struct {
	InstanceType string `yaml:"instance_type" doc:"Instance type; empty means all."`
	Zone         string `yaml:"zone" doc:"Zone; empty means all."`
	CapacityType string `yaml:"capacity_type" doc:"Capacity type: bare_metal, reserved, on_demand or spot; empty means all."`
	// Share is the part of the quota that can be had, 0 to 1.
	Share float64 `yaml:"share" doc:"Share of the quota that is in stock, 0 to 1."`
}

func on(b bool) *bool { return &b }

// presets are the three worlds of PROV-26.9.
func presets() map[string]World {
	ms := func(p50, p99 int) substrate.Latency {
		return substrate.Latency{P50: time.Duration(p50) * time.Millisecond, P99: time.Duration(p99) * time.Millisecond}
	}
	return map[string]World{
		"calm": {
			Latency: map[string]substrate.Latency{"": {Constant: 50 * time.Millisecond}},
			Market:  Market{Moving: on(false), Interruptions: on(false)},
		},
		"lively": {
			Latency: map[string]substrate.Latency{
				"": ms(80, 400), "Create": ms(22_000, 75_000), "Configure": ms(4_000, 15_000), "Ready": ms(18_000, 60_000),
				"Drain": ms(5_000, 40_000), "Delete": ms(6_000, 30_000),
			},
			Failures: map[string]float64{"Create": 0.002, "Configure": 0.002}, Transient: map[string]float64{"": 0.01},
			Market: Market{Moving: on(true), Interruptions: on(true), Volatility: 0.02, Recovery: 10},
			Stock:  []Stock{{CapacityType: "spot", Share: 0.7}},
		},
		"storm": {
			Latency: map[string]substrate.Latency{
				"": ms(200, 4_000), "Create": ms(35_000, 180_000), "Configure": ms(8_000, 60_000), "Ready": ms(30_000, 150_000),
				"Drain": ms(10_000, 120_000), "Delete": ms(10_000, 90_000),
			},
			Failures: map[string]float64{"Create": 0.05, "Configure": 0.03, "Drain": 0.01, "Delete": 0.01}, Transient: map[string]float64{"": 0.1},
			Market: Market{Moving: on(true), Interruptions: on(true), Volatility: 0.10, Recovery: 2, OutagesPerDay: 4, Outage: 45 * time.Minute},
			Stock:  []Stock{{CapacityType: "spot", Share: 0.3}, {CapacityType: "on_demand", Share: 0.6}},
		},
	}
}

// withPreset fills what is not given, and names everything that cannot be.
func (w World) withPreset() (World, error) {
	if w.Preset == "" {
		w.Preset = "calm"
	}
	base, known := presets()[w.Preset]
	if !known {
		return w, fmt.Errorf("sim: unknown preset %q; use calm, lively or storm", w.Preset)
	}
	if w.Seed == 0 {
		w.Seed = 1
	}
	if w.TimeScale == 0 {
		w.TimeScale = 1
	}
	if w.Latency == nil {
		w.Latency = base.Latency
	}
	if w.Failures == nil {
		w.Failures = base.Failures
	}
	if w.Transient == nil {
		w.Transient = base.Transient
	}
	if w.Stock == nil {
		w.Stock = base.Stock
	}
	w.Market = w.Market.over(base.Market)
	return w, w.check()
}

func (m Market) over(base Market) Market {
	if m.Moving == nil {
		m.Moving = base.Moving
	}
	if m.Interruptions == nil {
		m.Interruptions = base.Interruptions
	}
	for _, d := range []struct {
		p          *time.Duration
		base, last time.Duration
	}{{&m.Step, base.Step, 5 * time.Minute}, {&m.Notice, base.Notice, 2 * time.Minute}, {&m.Outage, base.Outage, 30 * time.Minute}} {
		if *d.p == 0 {
			*d.p = d.base
		}
		if *d.p == 0 {
			*d.p = d.last
		}
	}
	for _, f := range []struct {
		p    *float64
		base float64
	}{{&m.Volatility, base.Volatility}, {&m.Recovery, base.Recovery}, {&m.OutagesPerDay, base.OutagesPerDay}} {
		if *f.p == 0 {
			*f.p = f.base
		}
	}
	return m
}

func (w World) check() error {
	var all []error
	if !(w.TimeScale >= 1 && w.TimeScale <= 10_000) { // no number is neither
		all = append(all, fmt.Errorf("sim: time_scale %v must be 1 to 10000", w.TimeScale))
	}
	for call, l := range w.Latency {
		if err := l.Check(); err != nil {
			all = append(all, fmt.Errorf("sim: %q: %w", call, err))
		}
	}
	for _, side := range []map[string]float64{w.Failures, w.Transient} {
		for call, p := range side {
			if p < 0 || p > 1 {
				all = append(all, fmt.Errorf("sim: probability %v of %q must be 0 to 1", p, call))
			}
		}
	}
	for _, s := range w.Stock {
		if _, known := classes[s.CapacityType]; s.Share < 0 || s.Share > 1 || !known && s.CapacityType != "" {
			all = append(all, fmt.Errorf("sim: stock %+v: share must be 0 to 1, and capacity_type bare_metal, reserved, on_demand or spot", s))
		}
	}
	m := w.Market
	if m.Step <= 0 || m.Notice < 0 || m.Volatility < 0 || m.Volatility > 1 || m.Recovery < 0 || m.OutagesPerDay < 0 || m.Outage < 0 {
		all = append(all, errors.New("sim: market: durations and rates must be at least 0, step above 0, volatility at most 1"))
	}
	return errors.Join(all...)
}

var classes = map[string]provider.CapacityType{
	"bare_metal": provider.BareMetal, "reserved": provider.Reserved, "on_demand": provider.OnDemand, "spot": provider.Spot,
}

// behaviours are the failures as rules of the simulated cloud. Rules that an operator adds at run time come later and win.
func (w World) behaviours() []*bigfleetv1alpha1.Behaviour {
	var out []*bigfleetv1alpha1.Behaviour
	for _, side := range []struct {
		class string
		rates map[string]float64
	}{{"transient", w.Transient}, {"permanent", w.Failures}} {
		for _, call := range []string{"", "Create", "Configure", "Drain", "Delete", "Describe"} { // the general rule first
			if p := side.rates[call]; p > 0 {
				out = append(out, &bigfleetv1alpha1.Behaviour{
					Call: call, Fault: bigfleetv1alpha1.FaultKind_FAULT_KIND_ERROR, ErrorClass: side.class, Probability: p,
				})
			}
		}
	}
	return out
}

// hidden is the stock of the pools that have less than their quota.
func (w World) hidden(pools []substrate.Pool) map[substrate.PoolKey]int {
	out := map[substrate.PoolKey]int{}
	for _, p := range pools {
		for _, s := range w.Stock {
			if (s.InstanceType == "" || s.InstanceType == p.InstanceType) && (s.Zone == "" || s.Zone == p.Zone) &&
				(s.CapacityType == "" || classes[s.CapacityType] == p.CapacityType) {
				out[p.PoolKey] = int(float64(p.Quota) * s.Share)
				break
			}
		}
	}
	return out
}
