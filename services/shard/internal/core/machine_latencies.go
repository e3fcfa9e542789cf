package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

func (c *machines) noteAcquired(o *operation) {
	if o.Unmet == 0 {
		o.Unmet = c.now
	}
	switch {
	case o.Kind == KindProvision:
		c.pub.acquired[o.Machine] = &acquisition{Path: "speculative", Unmet: o.Unmet}
	case o.Cause != engine.CauseHandover || c.pub.acquired[o.Machine] == nil:
		c.pub.acquired[o.Machine] = &acquisition{Path: "idle", Unmet: o.Unmet}
	}
}

// observePhase samples how long a command took to its terminal fact. Failures are never put in success histograms.
func (c *machines) observePhase(o *operation) {
	if o.Sent == 0 {
		return
	}
	m := [rpcs]Metric{0, MetricCreatePhase, MetricConfigurePhase, MetricDrainPhase, MetricDeletePhase}[o.rpc()]
	c.sample(m, "", c.now-o.Sent)
}

func (c *machines) observeRPC(o *operation, e CommandDone) {
	c.emit(Sample{Metric: MetricProviderRPC, Label1: o.Provider + "\x00" + o.rpc().String(), Label2: e.Code.String(), Value: e.Duration})
}

func (c *machines) observeConfigured(i inventory.Index) {
	if a := c.pub.acquired[c.world.Inventory.ID(i)]; a != nil && !a.Bound {
		a.Bound = true
		c.sample(MetricProvisioningLatency, a.Path, c.now-a.Unmet)
	}
}

// observeReady samples the latency that a user feels, once per machine acquired.
func (c *machines) observeReady(i inventory.Index) {
	id := c.world.Inventory.ID(i)
	if a := c.pub.acquired[id]; a != nil {
		c.sample(MetricDemandToReady, a.Path, c.now-a.Unmet)
		delete(c.pub.acquired, id)
	}
}

// effectiveCost is price plus probability times the penalty of the need a machine is promised to (ENG-7.4).
func (c *machines) effectiveCost(i inventory.Index, p inventory.Promise) int64 {
	inv := c.world.Inventory
	// probability is parts per million and the penalty half-dollars: 1e-6 x 0.5e6 micro-dollars is a half.
	return inv.Price(i) + int64(inv.Probability(i))*int64(p.For.Interruption)/2
}
