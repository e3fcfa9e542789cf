package substrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// Compile-time proof of what a Cloud can do.
var (
	_ provider.Backend  = (*Cloud)(nil)
	_ provider.Deleter  = (*Cloud)(nil)
	_ provider.Readier  = (*Cloud)(nil)
	_ provider.Notifier = (*Cloud)(nil)
	_ provider.Pricer   = (*Cloud)(nil)
	_ provider.Binder   = (*Cloud)(nil)
	_ provider.Attacher = (*Cloud)(nil)

	_ provider.Estimator = (*Cloud)(nil)
)

// WithoutDelete is the Cloud as a pool of hosts that cannot be given back.
func (c *Cloud) WithoutDelete() Undeletable { return Undeletable{c} }

// Undeletable is a Cloud with every method of a backend but Delete.
type Undeletable struct{ c *Cloud }

func (n Undeletable) Describe(ctx context.Context, found func(provider.Host) error) error {
	return n.c.Describe(ctx, found)
}
func (n Undeletable) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	return n.c.Create(ctx, op)
}
func (n Undeletable) Configure(ctx context.Context, op provider.ConfigureOp) error {
	return n.c.Configure(ctx, op)
}
func (n Undeletable) Drain(ctx context.Context, op provider.DrainOp) error { return n.c.Drain(ctx, op) }
func (n Undeletable) Ready(ctx context.Context, m provider.Machine) error  { return n.c.Ready(ctx, m) }
func (n Undeletable) Attach(f provider.Fleet)                              { n.c.Attach(f) }
func (n Undeletable) Unbind(ctx context.Context, m provider.Machine) error { return n.c.Unbind(ctx, m) }
func (n Undeletable) Bind(ctx context.Context, m provider.Machine, b provider.Binding) error {
	return n.c.Bind(ctx, m, b)
}
func (n Undeletable) Notify(ctx context.Context, send func(provider.Notice)) error {
	return n.c.Notify(ctx, send)
}
func (n Undeletable) Prices(ctx context.Context, quote func(provider.Quote) error) error {
	return n.c.Prices(ctx, quote)
}

// DrainEstimate is the middle of the configured latency, in real time, and at least a second.
func (c *Cloud) DrainEstimate(provider.Offering) time.Duration {
	latency, known := c.config.Latency[CallDrain]
	if !known {
		latency = c.config.Latency[""]
	}
	return max(time.Second, time.Duration(float64(latency.typical())/max(1, c.config.TimeScale)))
}

// DrainEstimate is that of the Cloud.
func (n Undeletable) DrainEstimate(o provider.Offering) time.Duration { return n.c.DrainEstimate(o) }

// Create launches a host. The same operation id twice launches once, as with a cloud's client token.
func (c *Cloud) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	var made *host
	err := c.call(ctx, CallCreate, op.Machine, op.ID, func() (bool, error) {
		if ref, again := c.tokens[op.ID]; again && c.hosts[ref] != nil {
			made = c.hosts[ref]
			return false, nil
		}
		if p := c.pools[keyOf(op.Machine)]; p != nil && p.stock <= 0 {
			return false, provider.OutOfCapacity(fmt.Errorf("no %s %s left in %s; another zone or type may have some",
				word(op.Machine.CapacityType), op.Machine.InstanceType, op.Machine.Zone))
		}
		ref := c.config.Name + "://" + op.Machine.Zone + "/h-" + strconv.FormatUint(hash(uint64(c.config.Seed), op.ID), 36)
		made = c.add(ref, op.Machine, op.StoreID, op.ID)
		c.tokens[op.ID] = ref
		return true, nil
	})
	if err != nil {
		return provider.Host{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.described(made), nil
}

// word is a capacity type as people write it.
func word(c provider.CapacityType) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(c.String(), "CAPACITY_TYPE_")), "_", "-")
}

// Configure lets the agent on the host join the cluster. The node becomes Ready after the latency of CallReady.
func (c *Cloud) Configure(ctx context.Context, op provider.ConfigureOp) error {
	return c.call(ctx, CallConfigure, op.Machine, op.ID, func() (bool, error) {
		h, err := c.of(op.Machine)
		if err != nil {
			return false, err
		}
		if h.machine == "" { // an owned host that is used for the first time
			h.machine = op.Machine.ID
		}
		c.account(h, time.Now())
		h.cluster, h.operation = op.Cluster, op.ID
		c.wake()
		return true, nil
	})
}

// Ready waits until the node is Ready.
func (c *Cloud) Ready(ctx context.Context, m provider.Machine) error {
	first := true
	for {
		c.mu.Lock()
		h, err := c.of(m)
		if err != nil {
			c.mu.Unlock()
			return err
		}
		if first {
			first = false
			d := c.judge(CallReady, m)
			h.readyAt = time.Time{}
			if d.fault != bigfleetv1alpha1.FaultKind_FAULT_KIND_NEVER_READY && d.fault != bigfleetv1alpha1.FaultKind_FAULT_KIND_HANG {
				h.readyAt = time.Now().Add(c.simulated(d.latency))
			}
		}
		at, changed := h.readyAt, c.changed
		c.mu.Unlock()
		wait := time.Until(at)
		if !at.IsZero() && wait <= 0 {
			return nil
		}
		var timer <-chan time.Time
		if !at.IsZero() {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer:
		case <-changed:
		}
	}
}

// SetReady makes the node of a machine Ready now, or never: the readiness hook of the conformance suite.
func (c *Cloud) SetReady(machine string, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hosts {
		if h.machine == machine {
			h.readyAt = time.Time{}
			if ready {
				h.readyAt = time.Now()
			}
		}
	}
	c.wake()
}

// Drain empties the host.
func (c *Cloud) Drain(ctx context.Context, op provider.DrainOp) error {
	return c.call(ctx, CallDrain, op.Machine, op.ID, func() (bool, error) {
		h, err := c.of(op.Machine)
		if err != nil {
			return false, err
		}
		c.account(h, time.Now())
		h.cluster, h.readyAt = "", time.Time{}
		return true, nil
	})
}

// Delete ends the host. One that is not there is no error.
func (c *Cloud) Delete(ctx context.Context, op provider.DeleteOp) error {
	return c.call(ctx, CallDelete, op.Machine, op.ID, func() (bool, error) {
		effect := false
		for _, h := range c.hosts {
			if h.ref == op.Machine.HostRef || op.Machine.HostRef == "" && h.machine == op.Machine.ID {
				c.end(h)
				effect = true
			}
		}
		return effect, nil
	})
}

// Bind writes the binding on the host.
func (c *Cloud) Bind(_ context.Context, m provider.Machine, b provider.Binding) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, err := c.of(m)
	if err != nil {
		return err
	}
	h.binding = &b
	return nil
}

// Unbind clears it.
func (c *Cloud) Unbind(_ context.Context, m provider.Machine) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, err := c.of(m); err == nil {
		h.binding = nil
	}
	return nil
}

// Describe shows the hosts that carry marks, and owned ones.
func (c *Cloud) Describe(ctx context.Context, found func(provider.Host) error) error {
	var shown []provider.Host
	err := c.call(ctx, CallDescribe, provider.Machine{}, "", func() (bool, error) {
		for _, h := range c.sorted() {
			if !h.lost {
				shown = append(shown, c.described(h))
			}
		}
		return false, nil
	})
	var old *staleError
	switch {
	case errors.As(err, &old):
		c.mu.Lock()
		shown = slices.Clone(c.stale)
		c.mu.Unlock()
	case err != nil:
		return err
	default:
		c.mu.Lock()
		c.stale = slices.Clone(shown)
		c.mu.Unlock()
	}
	for _, h := range shown {
		if err := found(h); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// described is a host as Describe shows it; the lock is held.
func (c *Cloud) described(h *host) provider.Host {
	out := provider.Host{Ref: h.ref, MachineID: h.machine, StoreID: h.store, OperationID: h.operation}
	if h.store == "" && h.machine != "" { // an owned host: its own provider knows it by the reference
		out.MachineID, out.OperationID = "", ""
	}
	if h.binding != nil {
		b := *h.binding
		b.Metadata = maps.Clone(b.Metadata)
		out.Binding = &b
	}
	if p := c.pools[h.pool]; p != nil && h.store == "" {
		a := p.attributes
		a.Labels = maps.Clone(h.labels)
		out.Attributes = &a
	}
	return out
}

// of finds the host of a machine; the lock is held.
func (c *Cloud) of(m provider.Machine) (*host, error) {
	h := c.hosts[m.HostRef]
	if h == nil || h.lost {
		return nil, fmt.Errorf("host %s is gone", m.HostRef)
	}
	return h, nil
}

// Prices quotes the pools.
func (c *Cloud) Prices(_ context.Context, quote func(provider.Quote) error) error {
	c.mu.Lock()
	var quotes []provider.Quote
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		p := c.pools[c.keys[key]]
		quotes = append(quotes, provider.Quote{
			Offering: key, PricePerHour: p.price, InterruptionProbability: p.risk, Source: "live", At: time.Now(),
		})
	}
	c.mu.Unlock()
	for _, q := range quotes {
		if err := quote(q); err != nil {
			return err
		}
	}
	return nil
}

// Notify sends the notices.
func (c *Cloud) Notify(ctx context.Context, send func(provider.Notice)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-c.notices:
			send(n)
		}
	}
}

func (c *Cloud) notify(n provider.Notice) {
	select {
	case c.notices <- n:
	default: // Describe shows it without the notice
	}
}
