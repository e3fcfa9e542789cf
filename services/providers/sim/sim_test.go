package sim

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// PROV-26.3: at least 40 types, GPUs among them, several zones and racks, all four classes, at least 2,000 slots, and every
// offering keeps the field rules; --seed-count scales it.
func TestCatalogue(t *testing.T) {
	types, zones, racks, gpus := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	slots, byClass := 0, map[provider.CapacityType]int{}
	for _, o := range Catalogue(0) {
		if err := lifecycle.Check(o.Attributes); err != nil {
			t.Errorf("%s: %v", o.Key(), err)
		}
		types[o.InstanceType], zones[o.Zone], racks[o.Labels["topology.bigfleet/rack"]] = true, true, true
		if o.Resources["nvidia.com/gpu"] != "" {
			gpus[o.InstanceType] = true
		}
		slots += o.Count
		byClass[o.CapacityType] += o.Count
	}
	if len(types) < 40 || len(zones) < 3 || len(racks) < len(zones)*racksPerZone || len(gpus) < 4 || slots < 2000 || len(byClass) != 4 {
		t.Errorf("%d types (%d with GPUs), %d zones, %d racks, %d slots, classes %v", len(types), len(gpus), len(zones), len(racks), slots, byClass)
	}
	for _, want := range []int{2000, 20_000, 100_000} {
		got := 0
		for _, o := range Catalogue(want) {
			got += o.Count
		}
		if math.Abs(float64(got-want)) > 0.35*float64(want) && got-want > 2000 {
			t.Errorf("Catalogue(%d) has %d slots", want, got)
		}
	}
	if _, err := provider.New("sim", &substrate.Cloud{}, provider.WithOfferings(Catalogue(0)...), provider.WithStore(store.Memory()),
		provider.WithReadiness(provider.SubstrateReadiness())); err != nil { // PROV-9.11: no two machines share an id
		t.Error(err)
	}
}

func pinned(class provider.CapacityType, count int, risk float64) []provider.Offering {
	return []provider.Offering{{Name: "one", Count: count, Attributes: provider.Attributes{
		InstanceType: "s.4x", Zone: "z-a", CapacityType: class, PricePerHour: 0.1, InterruptionProbability: risk, Resources: map[string]string{"cpu": "4"},
	}}}
}

// world runs a sim in this process.
func world(t *testing.T, c Config) (bigfleetv1alpha1connect.CapacityProviderClient, bigfleetv1alpha1connect.SubstrateControlClient, *substrate.Cloud) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.Log, c.ControlAddr = "sim", slog.New(slog.DiscardHandler), control.Addr().String()
	if err := control.Close(); err != nil {
		t.Fatal(err)
	}
	c.Options = append(c.Options, provider.WithStore(store.Memory()), provider.WithListener(l), provider.WithReconcileInterval(100*time.Millisecond),
		provider.WithShutdownGrace(time.Millisecond))
	p, cloud, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-p.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("Run ended: %v", err)
	}
	h := &http.Client{Transport: transport}
	return bigfleetv1alpha1connect.NewCapacityProviderClient(h, "http://"+l.Addr().String(), connect.WithGRPC()),
		bigfleetv1alpha1connect.NewSubstrateControlClient(h, "http://"+c.ControlAddr), cloud
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

func machine(t *testing.T, c bigfleetv1alpha1connect.CapacityProviderClient, id string) *bigfleetv1alpha1.Machine {
	t.Helper()
	m, err := c.Get(t.Context(), connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.Msg
}

func create(t *testing.T, c bigfleetv1alpha1connect.CapacityProviderClient, id string) {
	t.Helper()
	if _, err := c.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id})); err != nil {
		t.Fatal(err)
	}
}

const (
	idle   = bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE
	failed = bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED
)

// PROV-26.7, 26.11, scenario 39: a zone is stocked out by RPC; Creates there fail as CAPACITY without a host. PROV-26.6: an
// interruption shows as probability 1 and then as a lost host. A doubled price shows on slots and on hosts.
func TestTheWorldChangesByRPC(t *testing.T) {
	registry := prometheus.NewRegistry()
	c, control, _ := world(t, Config{Offerings: pinned(provider.Spot, 4, 0.02), Registerer: registry, World: World{TimeScale: 100}})
	create(t, c, "sim-one-0")
	create(t, c, "sim-one-1")
	for _, id := range []string{"sim-one-0", "sim-one-1"} {
		eventually(t, id+" in IDLE", func() bool { return machine(t, c, id).GetState() == idle })
	}

	if _, err := control.SetPrice(t.Context(), connect.NewRequest(&bigfleetv1alpha1.SetPriceRequest{
		Selector: &bigfleetv1alpha1.MachineSelector{Zone: "z-a"}, PricePerHour: new(0.2),
	})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the doubled price", func() bool {
		return machine(t, c, "sim-one-0").GetPricePerHour() == 0.2 && machine(t, c, "sim-one-3").GetPricePerHour() == 0.2
	})

	if _, err := control.SetStock(t.Context(), connect.NewRequest(&bigfleetv1alpha1.SetStockRequest{Selector: &bigfleetv1alpha1.MachineSelector{Zone: "z-a"}})); err != nil {
		t.Fatal(err)
	}
	create(t, c, "sim-one-2")
	eventually(t, "the stock-out", func() bool { return machine(t, c, "sim-one-2").GetState() == failed })
	if m := machine(t, c, "sim-one-2"); m.GetFailure() != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_CAPACITY || m.GetHost() != nil {
		t.Errorf("%v", m)
	}

	hit, err := control.Interrupt(t.Context(), connect.NewRequest(&bigfleetv1alpha1.InterruptRequest{
		Selector: &bigfleetv1alpha1.MachineSelector{MachineIds: []string{"sim-one-0"}}, NoticeMillis: 60_000,
	}))
	if err != nil || !slices.Equal(hit.Msg.GetMachineIds(), []string{"sim-one-0"}) {
		t.Fatalf("%v %v", hit, err)
	}
	eventually(t, "the notice", func() bool {
		m := machine(t, c, "sim-one-0")
		return m.GetInterruptionProbability() == 1 || m.GetState() == failed
	})
	eventually(t, "the loss", func() bool { return machine(t, c, "sim-one-0").GetState() == failed })
	if m := machine(t, c, "sim-one-1"); m.GetState() != idle {
		t.Errorf("another machine: %v", m)
	}

	state, err := control.GetState(t.Context(), connect.NewRequest(&bigfleetv1alpha1.GetStateRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	// PROV-26.13: the ledger; PROV-26.12: the minute of notice passed a hundred times faster, and a price is one of simulated hours.
	if clock := state.Msg.GetClockSeconds(); clock < 60 {
		t.Errorf("the simulated clock is at %g s after a minute's notice", clock)
	}
	l := state.Msg.GetLedger()
	if rate := l.GetSpendByCapacityType()["CAPACITY_TYPE_SPOT"] / l.GetMachineHours(); rate < 0.1 || rate > 0.2 {
		t.Errorf("a machine-hour cost $%g, the price was 0.1 and then 0.2", rate)
	}
	if l.GetInterruptions() != 1 || l.GetMachineHours() <= 0 || l.GetSpendByCluster()[""] <= 0 || l.GetSpendByCapacityType()["CAPACITY_TYPE_SPOT"] <= 0 {
		t.Errorf("ledger %v", l)
	}
	if n, err := testutil.GatherAndCount(registry, "bigfleet_provider_sim_spend_usd_total"); err != nil || n == 0 {
		t.Errorf("%d series of the spend (%v)", n, err)
	}
}

// PROV-24.6, 26.10, scenario 58: with one seed, outcomes per machine do not depend on order or parallelism.
func TestOneSeedOneWorld(t *testing.T) {
	outcomes := func(seed int64, parallel bool) map[string]string {
		c, _, _ := world(t, Config{Offerings: pinned(provider.OnDemand, 60, 0), World: World{
			Seed: seed, TimeScale: 1000, Failures: map[string]float64{"Create": 0.4},
			Latency: map[string]substrate.Latency{"": {Min: time.Second, Max: 10 * time.Second}},
		}, Options: []provider.Option{provider.WithJanitor(false)}})
		ids := []string{}
		list, err := c.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list.Msg.GetMachines() {
			ids = append(ids, m.GetId())
		}
		slices.Sort(ids)
		if parallel {
			slices.Reverse(ids)
			var wait sync.WaitGroup
			for _, id := range ids {
				wait.Go(func() {
					_, _ = c.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id}))
				})
			}
			wait.Wait()
		}
		out := map[string]string{}
		for _, id := range ids {
			if !parallel {
				create(t, c, id)
			}
			eventually(t, id, func() bool { s := machine(t, c, id).GetState(); return s == idle || s == failed })
			out[id] = machine(t, c, id).GetState().String()
		}
		return out
	}
	first, second := outcomes(7, false), outcomes(7, true)
	if !maps.Equal(first, second) {
		t.Error("one seed gave two worlds")
	}
	if maps.Equal(first, outcomes(8, true)) {
		t.Error("another seed gave the same world")
	}
}

// fate is a market over a cloud with n spot hosts, without a provider in front.
func fate(t *testing.T, n int, w World) (*market, *substrate.Cloud) {
	t.Helper()
	w, err := w.withPreset()
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := substrate.New(substrate.Config{Name: "sim", Seed: w.Seed, Offerings: pinned(provider.Spot, n, 0.05)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m := provider.Machine{ID: "m-" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))}
		m.InstanceType, m.Zone, m.CapacityType = "s.4x", "z-a", provider.Spot
		if _, err := cloud.Create(t.Context(), provider.CreateOp{ID: "op-" + m.ID, Machine: m, StoreID: "s"}); err != nil {
			t.Fatal(err)
		}
	}
	return newMarket(w, cloud), cloud
}

// PROV-26.5, scenario 59: over 10,000 machine-hours the observed rate of interruptions is within three standard deviations
// of what was declared.
func TestTheMarketIsHonest(t *testing.T) {
	for _, seed := range []int64{1, 2, 3} {
		const hosts, p = 2000, 0.05
		m, cloud := fate(t, hosts, World{Seed: seed, Market: Market{Moving: new(false), Interruptions: new(true), Notice: 1000 * time.Hour}})
		hours, hit := 0.0, 0
		for hours < 10_000 {
			running := 0
			for _, h := range cloud.Hosts() {
				if !h.Interrupted {
					running++
				}
			}
			m.advance()
			hours += float64(running) * m.hours()
			after := 0
			for _, h := range cloud.Hosts() {
				if h.Interrupted {
					after++
				}
			}
			hit = after
		}
		// Per machine and step the chance is 1-(1-p)^h; over many steps the count is close to normal.
		q := 1 - math.Pow(1-p, m.hours())
		trials := hours / m.hours()
		want, deviation := trials*q, math.Sqrt(trials*q*(1-q))
		if math.Abs(float64(hit)-want) > 3*deviation {
			t.Errorf("seed %d: %d interruptions in %.0f machine-hours, declared are %.0f ± %.0f", seed, hit, hours, want, deviation)
		}
	}
}

// PROV-26.4: prices move, stay within their bounds and come back; the probability follows the use of the pool.
func TestPricesWalk(t *testing.T) {
	m, cloud := fate(t, 10, World{Preset: "storm", Market: Market{Interruptions: new(false), OutagesPerDay: 0}})
	m.world.Market.OutagesPerDay = 0
	home := cloud.Pools()[0].Price
	seen, sum := map[float64]bool{}, 0.0
	const steps = 3000
	for range steps {
		m.advance()
		p := cloud.Pools()[0]
		if p.Price < lowest*home || p.Price > highest*home || p.Risk < riskLow || p.Risk > riskTop {
			t.Fatalf("price %v, risk %v", p.Price, p.Risk)
		}
		seen[p.Price] = true
		sum += p.Price
	}
	if mean := sum / steps; len(seen) < steps/2 || mean < 0.8*home || mean > 2.2*home {
		t.Errorf("%d prices, mean %v, home %v", len(seen), mean, home)
	}
}

// PROV-26.7: a zone that is away has no stock and comes back as it was.
func TestZoneOutage(t *testing.T) {
	m, cloud := fate(t, 10, World{Market: Market{Interruptions: new(false), Moving: new(false), OutagesPerDay: 100_000, Outage: 10 * time.Minute, Notice: time.Hour}})
	cloud.SetStock(cloud.Pools()[0].PoolKey, 5)
	m.advance()
	if p := cloud.Pools()[0]; p.Stock != 0 || !cloud.Hosts()[0].Interrupted {
		t.Fatalf("during the outage: %+v", p)
	}
	m.world.Market.OutagesPerDay = 0
	for range 3 {
		m.advance()
	}
	if p := cloud.Pools()[0]; p.Stock != 5 {
		t.Errorf("after the outage: %+v", p)
	}
}

// A world that cannot be is refused with the reason.
func TestImpossibleWorlds(t *testing.T) {
	for name, w := range map[string]World{
		"preset": {Preset: "sunny"}, "scale": {TimeScale: 0.5}, "fast": {TimeScale: 20_000}, "latency": {Latency: map[string]substrate.Latency{"": {P50: 1, P99: 0, Constant: 1}}},
		"chance": {Failures: map[string]float64{"Create": 2}}, "stock": {Stock: []Stock{{CapacityType: "free"}}}, "volatility": {Market: Market{Volatility: 3}},
	} {
		if _, err := w.withPreset(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
