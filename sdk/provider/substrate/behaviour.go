package substrate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// Latency is a distribution of durations (PROV-26.8). At most one form is set; none means no time at all.
type Latency struct {
	Constant time.Duration   `yaml:"constant" doc:"Constant latency."`
	Min      time.Duration   `yaml:"min" doc:"Lower bound of a uniform distribution."`
	Max      time.Duration   `yaml:"max" doc:"Upper bound of a uniform distribution."`
	P50      time.Duration   `yaml:"p50" doc:"Median of a log-normal distribution."`
	P99      time.Duration   `yaml:"p99" doc:"99th percentile of the log-normal distribution."`
	List     []time.Duration `yaml:"list" doc:"Latencies of which one is drawn, each with equal probability."`
}

// Check says what is wrong with it.
func (l Latency) Check() error {
	forms := 0
	for _, set := range []bool{l.Constant != 0, l.Min != 0 || l.Max != 0, l.P50 != 0 || l.P99 != 0, len(l.List) > 0} {
		if set {
			forms++
		}
	}
	switch {
	case forms > 1:
		return errors.New("latency: give one of constant, min and max, p50 and p99, list")
	case l.Constant < 0 || l.Min < 0 || l.Max < l.Min || l.P50 < 0 || l.P99 < l.P50 || l.P99 > 0 && l.P50 == 0:
		return errors.New("latency: durations must be at least 0, max at least min, p99 at least p50, p50 above 0")
	case slices.ContainsFunc(l.List, func(d time.Duration) bool { return d < 0 }):
		return errors.New("latency: the list has a negative duration")
	}
	return nil
}

// zScore99 is the 99th percentile of the standard normal distribution.
const zScore99 = 2.3263478740408408

func (l Latency) draw(r *rand.Rand) time.Duration {
	switch {
	case len(l.List) > 0:
		return l.List[r.IntN(len(l.List))]
	case l.P50 > 0:
		sigma := math.Log(float64(l.P99)/float64(l.P50)) / zScore99
		return time.Duration(float64(l.P50) * math.Exp(sigma*r.NormFloat64()))
	case l.Max > 0:
		return l.Min + time.Duration(r.Int64N(int64(l.Max-l.Min)+1))
	}
	return l.Constant
}

// typical is the middle of the distribution.
func (l Latency) typical() time.Duration {
	switch {
	case len(l.List) > 0:
		sorted := slices.Sorted(slices.Values(l.List))
		return sorted[len(sorted)/2]
	case l.P50 > 0:
		return l.P50
	case l.Max > 0:
		return l.Min + (l.Max-l.Min)/2
	}
	return l.Constant
}

// rules are the behaviours in force. A later one wins.
type rules struct {
	next  int
	order []string
	byID  map[string]*bigfleetv1alpha1.Behaviour
	used  map[string]int32
}

func (r *rules) add(b *bigfleetv1alpha1.Behaviour) string {
	r.next++
	id := "b-" + strconv.Itoa(r.next)
	r.byID[id] = b
	r.order = append(r.order, id)
	return id
}

func (r *rules) clear(ids []string) {
	if len(ids) == 0 {
		ids = slices.Clone(r.order)
	}
	for _, id := range ids {
		delete(r.byID, id)
		delete(r.used, id)
	}
	r.order = slices.DeleteFunc(r.order, func(id string) bool { return r.byID[id] == nil })
}

var classes = map[string]func(error) error{
	"transient": provider.Transient, "out_of_capacity": provider.OutOfCapacity, "quota": provider.Quota,
	"credentials": provider.Credentials, "bootstrap": provider.Bootstrap,
	"permanent": func(err error) error { return err },
}

func checkBehaviour(b *bigfleetv1alpha1.Behaviour) error {
	if err := checkCall(b.GetCall()); err != nil {
		return err
	}
	needsClass := b.GetFault() == bigfleetv1alpha1.FaultKind_FAULT_KIND_ERROR || b.GetFault() == bigfleetv1alpha1.FaultKind_FAULT_KIND_PARTIAL
	if needsClass && classes[b.GetErrorClass()] == nil {
		return fmt.Errorf("unknown error_class %q; use transient, out_of_capacity, quota, credentials, bootstrap or permanent", b.GetErrorClass())
	}
	if b.GetProbability() < 0 || b.GetProbability() > 1 || b.GetLatencyMillis() < 0 || b.GetTimes() < 0 {
		return errors.New("probability must be 0 to 1, latency and times at least 0")
	}
	return nil
}

// decision is what one call does.
type decision struct {
	fault   bigfleetv1alpha1.FaultKind
	class   string
	latency time.Duration // simulated
}

// judge decides one call; the lock is held. All draws of the call come from one source (PROV-24.6).
func (c *Cloud) judge(call string, m provider.Machine) decision {
	name := m.ID + "\x00" + call
	c.calls[name]++
	seed := hash(uint64(c.config.Seed), name)
	random := rand.New(rand.NewPCG(seed, c.calls[name]))
	base, known := c.config.Latency[call]
	if !known {
		base = c.config.Latency[""]
	}
	d := decision{latency: base.draw(random)}
	for _, id := range slices.Backward(c.rules.order) {
		b := c.rules.byID[id]
		if b.GetCall() != "" && b.GetCall() != call || !matches(b.GetSelector(), m) {
			continue
		}
		if p := b.GetProbability(); p > 0 && random.Float64() >= p {
			continue
		}
		if b.GetTimes() > 0 {
			if c.rules.used == nil {
				c.rules.used = map[string]int32{}
			}
			if c.rules.used[id] >= b.GetTimes() {
				continue
			}
			c.rules.used[id]++
		}
		d.fault, d.class = b.GetFault(), b.GetErrorClass()
		d.latency += time.Duration(b.GetLatencyMillis()) * time.Millisecond
		break
	}
	return d
}

func hash(seed uint64, text string) uint64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, seed) // a hash never fails to write
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

func matches(s *bigfleetv1alpha1.MachineSelector, m provider.Machine) bool {
	if s == nil {
		return true
	}
	if len(s.GetMachineIds()) > 0 && !slices.Contains(s.GetMachineIds(), m.ID) ||
		s.GetInstanceType() != "" && s.GetInstanceType() != m.InstanceType ||
		s.GetZone() != "" && s.GetZone() != m.Zone ||
		s.GetCapacityType() != 0 && s.GetCapacityType() != m.CapacityType ||
		s.GetClusterId() != "" && s.GetClusterId() != m.Cluster {
		return false
	}
	for k, v := range s.GetLabels() {
		if m.Labels[k] != v {
			return false
		}
	}
	return true
}

// lateTime is how long an effect may take that comes after its caller has left.
const lateTime = 10 * time.Second

// staleError asks for an old picture.
type staleError struct{}

func (*staleError) Error() string { return "an old picture" }

// call makes one simulated call. effect runs under the lock and says whether it changed something.
func (c *Cloud) call(ctx context.Context, name string, m provider.Machine, operation string, effect func() (bool, error)) error {
	return c.inject(ctx, name, m, operation, func(context.Context) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return effect()
	})
}

// inject makes one call whose effect needs no lock, with the faults that are in force for it.
func (c *Cloud) inject(ctx context.Context, name string, m provider.Machine, operation string, effect func(context.Context) (bool, error)) error {
	return provider.Call(ctx, name, func(ctx context.Context) error {
		c.mu.Lock()
		d := c.judge(name, m)
		c.mu.Unlock()
		changed, err := false, error(nil)
		pause := func() error {
			if d.latency <= 0 {
				return ctx.Err()
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(c.simulated(d.latency)):
				return nil
			}
		}
		switch d.fault {
		case bigfleetv1alpha1.FaultKind_FAULT_KIND_ERROR:
			if err = pause(); err == nil {
				err = classes[d.class](fmt.Errorf("the simulated cloud rejected %s (%s)", name, d.class))
			}
		case bigfleetv1alpha1.FaultKind_FAULT_KIND_HANG:
			<-ctx.Done()
			err = context.Cause(ctx)
		case bigfleetv1alpha1.FaultKind_FAULT_KIND_LATE_SUCCESS:
			<-ctx.Done()
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
			defer cancel()
			changed, err = effect(late)
		case bigfleetv1alpha1.FaultKind_FAULT_KIND_PARTIAL:
			if err = pause(); err == nil {
				if changed, err = effect(ctx); err == nil {
					err = classes[d.class](fmt.Errorf("the simulated cloud carried out %s and reported a failure (%s)", name, d.class))
				}
			}
		case bigfleetv1alpha1.FaultKind_FAULT_KIND_THROTTLE:
			err = provider.RetryAfter(100*time.Millisecond, fmt.Errorf("%s: too many requests", name))
		case bigfleetv1alpha1.FaultKind_FAULT_KIND_OUTAGE:
			err = provider.Transient(fmt.Errorf("%s: the simulated cloud does not answer", name))
		case bigfleetv1alpha1.FaultKind_FAULT_KIND_STALE:
			err = &staleError{}
		default:
			if err = pause(); err == nil {
				changed, err = effect(ctx)
			}
		}
		c.note(name, m.ID, operation, changed, err)
		return err
	})
}
