package sim

import (
	"context"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
)

// market moves spot prices, draws interruptions, brings stock back and takes zones away, one step at a time. It is drawn
// from (seed, what, whom, number of the step), so that it does not depend on timing or on who else draws (PROV-24.6).
type market struct {
	world World
	cloud *substrate.Cloud
	home  map[substrate.PoolKey]substrate.Pool // prices at the start: what the walk returns to
	full  map[substrate.PoolKey]int            // stock plus hosts that a pool grows back to
	dark  map[string]uint64                    // zones that are away, until that step
	saved map[substrate.PoolKey]int            // their stock before
	step  uint64
}

func newMarket(w World, c *substrate.Cloud) *market {
	m := &market{
		world: w, cloud: c, home: map[substrate.PoolKey]substrate.Pool{}, full: map[substrate.PoolKey]int{},
		dark: map[string]uint64{}, saved: map[substrate.PoolKey]int{},
	}
	for _, p := range c.Pools() {
		m.home[p.PoolKey], m.full[p.PoolKey] = p, p.Quota
	}
	return m
}

// run steps until ctx ends. The first step comes after a full one (PROV-26.4).
func (m *market) run(ctx context.Context) {
	every := time.Duration(float64(m.world.Market.Step) / m.world.TimeScale)
	ticker := time.NewTicker(max(every, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.advance()
		}
	}
}

// advance is one step of simulated time.
func (m *market) advance() {
	m.step++
	pools := m.cloud.Pools()
	if *m.world.Market.Moving {
		for _, p := range pools {
			if p.CapacityType == provider.Spot {
				price, risk := m.walk(p)
				m.cloud.SetPool(p.PoolKey, price, risk)
			}
		}
	}
	m.recover(pools)
	m.outages(pools)
	if *m.world.Market.Interruptions {
		m.interrupt()
	}
}

// draw is the source for one purpose in this step.
func (m *market) draw(what, whom string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(what + "\x00" + whom)) // a hash never fails to write
	return rand.New(rand.NewPCG(uint64(m.world.Seed)^h.Sum64(), m.step))
}

// Constants of the walk. It goes back to its home price by a tenth of the way per step, so that it forgets a shock within
// an hour of five-minute steps, and stays between half and three times the home price, as spot prices do.
const (
	reversion        = 0.1
	lowest, highest  = 0.5, 3.0
	riskLow, riskTop = 0.001, 0.5
)

// walk is one step of a mean-reverting walk in the logarithm of the price. The probability of interruption follows the
// utilisation of the pool: full pools are taken back sooner.
func (m *market) walk(p substrate.Pool) (price, risk float64) {
	home := m.home[p.PoolKey]
	r := m.draw("price", name(p.PoolKey))
	used := 0.0
	if p.Hosts+p.Stock > 0 {
		used = float64(p.Hosts) / float64(p.Hosts+p.Stock)
	}
	target := math.Log(home.Price * (1 + used/2)) // demand lifts the price
	at := math.Log(p.Price)
	at += reversion*(target-at) + m.world.Market.Volatility*r.NormFloat64()
	price = min(max(math.Exp(at), lowest*home.Price), highest*home.Price)
	risk = min(max(home.Risk*(0.5+2*used), riskLow), riskTop)
	return price, risk
}

func name(k substrate.PoolKey) string {
	return k.InstanceType + "\x00" + k.Zone + "\x00" + k.CapacityType.String()
}

// hours is a step in simulated hours.
func (m *market) hours() float64 { return m.world.Market.Step.Hours() }

// interrupt draws for each spot host from the hourly probability that its pool declares (PROV-26.5): over a step of h
// hours the chance is 1-(1-p)^h.
func (m *market) interrupt() {
	risk := map[substrate.PoolKey]float64{}
	for _, p := range m.cloud.Pools() {
		risk[p.PoolKey] = p.Risk
	}
	for _, h := range m.cloud.Hosts() {
		if h.Pool.CapacityType != provider.Spot || h.Interrupted {
			continue
		}
		if m.draw("interrupt", h.Machine).Float64() < 1-math.Pow(1-risk[h.Pool], m.hours()) {
			m.cloud.Interrupt(h.Machine, m.world.Market.Notice)
		}
	}
}

// recover brings hidden stock back, at a rate, up to the quota (PROV-26.7).
func (m *market) recover(pools []substrate.Pool) {
	if m.world.Market.Recovery == 0 {
		return
	}
	for _, p := range pools {
		missing := m.full[p.PoolKey] - p.Hosts - p.Stock
		if missing <= 0 || m.dark[p.Zone] > 0 {
			continue
		}
		expected := m.world.Market.Recovery * m.hours()
		whole := math.Floor(expected)
		if m.draw("stock", name(p.PoolKey)).Float64() < expected-whole {
			whole++
		}
		if whole > 0 {
			m.cloud.SetStock(p.PoolKey, p.Stock+min(missing, int(whole)))
		}
	}
}

// outages takes the stock of a whole zone away for a while, and its spot hosts with it.
func (m *market) outages(pools []substrate.Pool) {
	zones := map[string]bool{}
	for _, p := range pools {
		zones[p.Zone] = true
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		if until := m.dark[zone]; until > 0 {
			if m.step >= until {
				delete(m.dark, zone)
				for _, p := range pools {
					if p.Zone == zone {
						m.cloud.SetStock(p.PoolKey, m.saved[p.PoolKey])
					}
				}
			}
			continue
		}
		chance := m.world.Market.OutagesPerDay / 24 * m.hours() / float64(len(zones))
		if m.world.Market.OutagesPerDay == 0 || m.draw("outage", zone).Float64() >= chance {
			continue
		}
		m.dark[zone] = m.step + max(1, uint64(m.world.Market.Outage/m.world.Market.Step))
		for _, p := range pools {
			if p.Zone == zone {
				m.saved[p.PoolKey] = p.Stock
				m.cloud.SetStock(p.PoolKey, 0)
			}
		}
		for _, h := range m.cloud.Hosts() {
			if h.Pool.Zone == zone && h.Pool.CapacityType == provider.Spot {
				m.cloud.Interrupt(h.Machine, m.world.Market.Notice)
			}
		}
	}
}
