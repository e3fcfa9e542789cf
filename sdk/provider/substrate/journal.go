package substrate

import (
	"errors"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// journal keeps the newest calls, to prove that n identical requests had one effect.
type journal struct {
	entries []*bigfleetv1alpha1.JournalEntry // oldest first
	number  int64
}

func (c *Cloud) note(call, machine, operation string, effect bool, err error) {
	result := "ok"
	var old *staleError
	if err != nil && !errors.As(err, &old) {
		class, _ := provider.ClassOf(err)
		result = class.String()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.number++
	c.journal.entries = append(c.journal.entries, &bigfleetv1alpha1.JournalEntry{
		Number: c.journal.number, Call: call, MachineId: machine, OperationId: operation,
		AtUnixNanos: time.Now().UnixNano(), Result: result, Effect: effect,
	})
	if extra := len(c.journal.entries) - c.config.JournalMax; extra > c.config.JournalMax/4 {
		c.journal.entries = append([]*bigfleetv1alpha1.JournalEntry(nil), c.journal.entries[extra:]...)
	}
}

// Journal returns entries after a number, for one machine or all, at most limit.
func (c *Cloud) Journal(machine string, after int64, limit int) []*bigfleetv1alpha1.JournalEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*bigfleetv1alpha1.JournalEntry
	for _, e := range c.journal.entries {
		if e.Number > after && (machine == "" || machine == e.MachineId) {
			if out = append(out, e); len(out) == limit {
				break
			}
		}
	}
	return out
}

// ledger is the money (PROV-26.13).
type ledger struct {
	byCluster     map[string]float64
	byClass       map[string]float64
	bound         map[string]float64 // by class, of hosts that serve a cluster
	hours         float64
	interruptions int64
}

func newLedger() ledger {
	return ledger{byCluster: map[string]float64{}, byClass: map[string]float64{}, bound: map[string]float64{}}
}

// account books a host up to now, in simulated hours; the lock is held.
func (c *Cloud) account(h *host, now time.Time) {
	hours := now.Sub(h.since).Hours() * c.config.TimeScale
	h.since = now
	if h.lost || hours <= 0 {
		return
	}
	c.ledger.hours += hours
	p := c.pools[h.pool]
	if p == nil {
		return
	}
	cost, class := hours*p.price, h.pool.CapacityType.String()
	c.ledger.byCluster[h.cluster] += cost
	c.ledger.byClass[class] += cost
	if h.cluster != "" {
		c.ledger.bound[class] += cost
	}
}

// Spend is the money so far by capacity type: all of it, and what served clusters.
func (c *Cloud) Spend() (all, bound map[string]float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accountAll()
	all, bound = map[string]float64{}, map[string]float64{}
	for k, v := range c.ledger.byClass {
		all[k], bound[k] = v, c.ledger.bound[k]
	}
	return all, bound
}

func (c *Cloud) accountAll() {
	now := time.Now()
	for _, h := range c.hosts {
		c.account(h, now)
	}
}
