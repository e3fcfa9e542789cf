package substrate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// Config describes a Cloud. The zero value answers everything at once.
type Config struct {
	Name string // of the provider; begins every host reference. Empty means "fake".
	Seed int64
	// Offerings give the pools: stock and price per (instance type, zone, capacity type). Machines of other pools have no
	// bound and their own price.
	Offerings []provider.Offering
	// Latency by call name; "" is for calls that are not named. Simulated time.
	Latency map[string]Latency
	// TimeScale is simulated seconds per second. 0 means 1.
	TimeScale float64
	// Behaviours are in force from the start.
	Behaviours []*bigfleetv1alpha1.Behaviour
	JournalMax int // entries kept; 0 means 100,000
}

// Names of the calls, for latencies, behaviours and the journal.
const (
	CallCreate    = "Create"
	CallConfigure = "Configure"
	CallReady     = "Ready"
	CallDrain     = "Drain"
	CallDelete    = "Delete"
	CallDescribe  = "Describe"
)

var calls = []string{CallCreate, CallConfigure, CallReady, CallDrain, CallDelete, CallDescribe}

// checkCall says whether a call has that name, so that a typing error is not a rule that never applies.
func checkCall(name string) error {
	if name != "" && !slices.Contains(calls, name) {
		return fmt.Errorf("unknown call %q; use %s, or leave it empty for all", name, strings.Join(calls, ", "))
	}
	return nil
}

// Cloud is the simulated cloud.
type Cloud struct {
	config Config
	began  time.Time

	mu      sync.Mutex
	fleet   provider.Fleet
	hosts   map[string]*host  // by reference
	tokens  map[string]string // operation id of a launch -> reference
	pools   map[PoolKey]*pool
	keys    map[string]PoolKey // offering key -> pool
	rules   rules
	calls   map[string]uint64 // draws so far, by machine and call
	journal journal
	ledger  ledger
	stale   []provider.Host // what Describe last showed, for stale pictures
	changed chan struct{}   // closed and replaced at each change a waiter may wait for
	notices chan provider.Notice
}

// host is one simulated host.
type host struct {
	ref, machine, store, operation string
	pool                           PoolKey
	labels                         map[string]string
	cluster                        string
	binding                        *provider.Binding
	readyAt                        time.Time // zero: the node is not coming
	lost                           bool
	interrupted                    bool
	since                          time.Time // of the newest entry in the ledger
}

// PoolKey names a pool of like capacity.
type PoolKey struct {
	InstanceType, Zone string
	CapacityType       provider.CapacityType
}

// pool is what a zone has of one type and class.
type pool struct {
	quota       int
	stock       int // hosts that can still be had
	hosts       int
	price, risk float64
	attributes  provider.Attributes
}

// New makes a Cloud.
func New(c Config) (*Cloud, error) {
	if c.Name == "" {
		c.Name = "fake"
	}
	if c.TimeScale == 0 {
		c.TimeScale = 1
	}
	if c.JournalMax == 0 {
		c.JournalMax = 100_000
	}
	if c.TimeScale < 0 || c.JournalMax < 0 {
		return nil, errors.New("substrate: time scale and journal size must be above 0")
	}
	for call := range c.Latency {
		if err := checkCall(call); err != nil {
			return nil, fmt.Errorf("substrate: latency: %w", err)
		}
	}
	cloud := &Cloud{
		config: c, began: time.Now(), hosts: map[string]*host{}, tokens: map[string]string{}, pools: map[PoolKey]*pool{},
		keys: map[string]PoolKey{}, calls: map[string]uint64{}, changed: make(chan struct{}), notices: make(chan provider.Notice, 4096),
		ledger: newLedger(),
	}
	cloud.rules.byID = map[string]*bigfleetv1alpha1.Behaviour{}
	for _, o := range c.Offerings {
		k := PoolKey{o.InstanceType, o.Zone, o.CapacityType}
		p := cloud.pools[k]
		if p == nil {
			p = &pool{price: o.PricePerHour, risk: o.InterruptionProbability, attributes: o.Attributes}
			cloud.pools[k] = p
		}
		p.quota += o.Count
		p.stock += o.Count
		cloud.keys[o.Key()] = k
	}
	for i, b := range c.Behaviours {
		if err := checkBehaviour(b); err != nil {
			return nil, fmt.Errorf("substrate: behaviour %d: %w", i, err)
		}
		cloud.rules.add(b)
	}
	return cloud, nil
}

// Attach implements provider.Attacher: the hosts in the provider's books exist.
func (c *Cloud) Attach(f provider.Fleet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fleet = f
	for m := range f.Machines() {
		if m.HostRef == "" {
			continue
		}
		h := c.hosts[m.HostRef]
		if h == nil {
			h = c.add(m.HostRef, m, f.StoreID(), "")
		}
		h.machine = m.ID
		if m.Cluster != "" {
			h.cluster, h.readyAt = m.Cluster, time.Now()
		}
	}
}

// add makes a host; the lock is held.
func (c *Cloud) add(ref string, m provider.Machine, store, operation string) *host {
	h := &host{ref: ref, machine: m.ID, store: store, operation: operation, pool: keyOf(m), labels: m.Labels, since: time.Now()}
	c.hosts[ref] = h
	if p := c.pools[h.pool]; p != nil {
		p.stock--
		p.hosts++
	}
	return h
}

// end removes a host and gives its place back; the lock is held.
func (c *Cloud) end(h *host) {
	c.account(h, time.Now())
	delete(c.hosts, h.ref)
	delete(c.tokens, h.operation)
	if p := c.pools[h.pool]; p != nil {
		p.stock++
		p.hosts--
	}
	c.wake()
}

// wake tells waiters that something changed; the lock is held.
func (c *Cloud) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func keyOf(m provider.Machine) PoolKey { return PoolKey{m.InstanceType, m.Zone, m.CapacityType} }

// Owned makes hosts that exist before any provider asks: a rack. They carry no marks until they are used.
func (c *Cloud) Owned(attributes provider.Attributes, refs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range refs {
		k := PoolKey{attributes.InstanceType, attributes.Zone, attributes.CapacityType}
		if c.pools[k] == nil {
			c.pools[k] = &pool{price: attributes.PricePerHour, risk: attributes.InterruptionProbability, attributes: attributes}
		}
		c.hosts[ref] = &host{ref: ref, pool: k, labels: attributes.Labels, since: time.Now()}
		c.pools[k].quota++
		c.pools[k].hosts++
	}
}

// simulated turns a simulated duration into a real one.
func (c *Cloud) simulated(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.config.TimeScale)
}

// Clock is the simulated time since the start.
func (c *Cloud) Clock() time.Duration {
	return time.Duration(float64(time.Since(c.began)) * c.config.TimeScale)
}

// SetPool changes price and hourly interruption probability of a pool. A negative value leaves one as it is.
func (c *Cloud) SetPool(k PoolKey, price, risk float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setPool(k, price, risk)
}

func (c *Cloud) setPool(k PoolKey, price, risk float64) {
	p := c.pools[k]
	if p == nil {
		return
	}
	now := time.Now()
	for _, h := range c.hosts { // money up to now is at the old price
		if h.pool == k {
			c.account(h, now)
		}
	}
	if price >= 0 {
		p.price, p.attributes.PricePerHour = price, price
	}
	if risk >= 0 {
		p.risk, p.attributes.InterruptionProbability = risk, risk
	}
}

// SetStock sets how many hosts of a pool can still be had.
func (c *Cloud) SetStock(k PoolKey, stock int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pools[k]; p != nil {
		p.stock = stock
	}
}

// Pool is the state of one pool.
type Pool struct {
	PoolKey
	Quota, Hosts, Stock int
	Price, Risk         float64
}

// Pools lists the pools in a fixed order.
func (c *Cloud) Pools() []Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Pool, 0, len(c.pools))
	for _, k := range slices.SortedFunc(maps.Keys(c.pools), comparePools) {
		p := c.pools[k]
		out = append(out, Pool{k, p.quota, p.hosts, p.stock, p.price, p.risk})
	}
	return out
}

func comparePools(a, b PoolKey) int {
	if d := slices.Compare([]string{a.InstanceType, a.Zone}, []string{b.InstanceType, b.Zone}); d != 0 {
		return d
	}
	return int(a.CapacityType) - int(b.CapacityType)
}

// Running is one host, for tests that inject faults: its machine, its pool, whether an interruption is under way.
type Running struct {
	Machine     string
	Pool        PoolKey
	Cluster     string
	Interrupted bool
}

// Hosts lists the hosts that run, ordered by machine.
func (c *Cloud) Hosts() []Running {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Running
	for _, h := range c.sorted() {
		if !h.lost {
			out = append(out, Running{h.machine, h.pool, h.cluster, h.interrupted})
		}
	}
	return out
}

// sorted lists hosts by machine, then reference; the lock is held.
func (c *Cloud) sorted() []*host {
	return slices.SortedFunc(maps.Values(c.hosts), func(a, b *host) int {
		return slices.Compare([]string{a.machine, a.ref}, []string{b.machine, b.ref})
	})
}
