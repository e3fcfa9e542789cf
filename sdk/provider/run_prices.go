package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// priceLoop asks the Pricer and puts quotes into force (PROV-28.4, 28.5).
func (p *Provider) priceLoop(ctx context.Context, q Pricer) {
	ticker := time.NewTicker(p.set.prices)
	defer ticker.Stop()
	for {
		if err := p.quoteRound(ctx, q); err != nil && ctx.Err() == nil {
			p.log.Error("prices could not be refreshed", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *Provider) quoteRound(ctx context.Context, q Pricer) error {
	asked, cancel := context.WithTimeout(p.callers.in(ctx), p.set.describe)
	defer cancel()
	fresh := map[string]Quote{}
	err := q.Prices(asked, func(one Quote) error {
		if one.At.IsZero() {
			one.At = time.Now()
		}
		fresh[one.Offering] = one
		return nil
	})
	p.metrics.priceRefresh.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		fresh = nil // a cut answer counts for nothing, but time continues
	}
	changed := p.offers.quote(fresh, p.set.priceAgeMax, time.Now(), p.rejectQuote)
	for _, one := range fresh {
		if shape := p.offers.shape(one.Offering); shape != nil {
			a := shape.Attributes()
			p.metrics.prices.WithLabelValues(a.InstanceType, a.Zone, capacityLabel(a.CapacityType)).Set(a.PricePerHour)
		}
	}
	if changed {
		p.offers.mu.Lock()
		c := p.offers.current
		p.offers.mu.Unlock()
		if failed := p.offer(c); failed != nil {
			return failed
		}
	}
	return err
}

func (p *Provider) rejectQuote(offering string, err error) { p.reject("price", offering, err) }

// quote takes quotes over and withdraws billable offerings whose price is too old. changed says that slots must be
// compared again.
func (o *offers) quote(fresh map[string]Quote, ageMax time.Duration, now time.Time, reject func(string, error)) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.quotes == nil {
		o.quotes, o.withdrawn = map[string]Quote{}, map[string]bool{}
	}
	for key, q := range fresh {
		one := o.current.byKey[key]
		if one == nil {
			continue
		}
		before := one.shape
		if err := one.reprice(q); err != nil {
			reject(key, err)
			continue
		}
		o.quotes[key] = q
		changed = changed || one.shape != before
	}
	for _, one := range o.current.order {
		q, quoted := o.quotes[one.key]
		billable := one.CapacityType == OnDemand || one.CapacityType == Spot
		old := quoted && billable && ageMax > 0 && now.Sub(q.At) > ageMax
		if old != o.withdrawn[one.key] {
			o.withdrawn[one.key], changed = old, true
		}
	}
	return changed
}

// reprice gives the offering the quoted price. Equal numbers keep the shape, so that a second equal refresh changes
// nothing.
func (o *offered) reprice(q Quote) error {
	a := cloneAttributes(o.shape.Attributes())
	if a.PricePerHour == q.PricePerHour && a.InterruptionProbability == q.InterruptionProbability {
		return nil
	}
	a.PricePerHour, a.InterruptionProbability = q.PricePerHour, q.InterruptionProbability
	shape, err := lifecycle.NewShape(a)
	if err != nil {
		return fmt.Errorf("quote from %s: %w", q.Source, err)
	}
	o.shape = shape
	return nil
}

// priceAges is the age of the oldest quote in force by source.
func (o *offers) priceAges(now time.Time) map[string]time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	ages := map[string]time.Duration{}
	for _, q := range o.quotes {
		ages[q.Source] = max(ages[q.Source], now.Sub(q.At))
	}
	return ages
}
