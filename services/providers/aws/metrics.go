package aws

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what only this provider has.
type metrics struct {
	notices     *prometheus.CounterVec
	queueErrors prometheus.Counter
}

func newMetrics(c Config, b *backend) (*metrics, error) {
	m := &metrics{
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bigfleet_provider_aws_notices_total", Help: "Notices of AWS by kind: interruption, rebalance, state, scheduled, other.",
		}, []string{"kind"}),
		queueErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bigfleet_provider_aws_queue_errors_total", Help: "Failed calls to the queue of notices.",
		}),
	}
	for _, kind := range []string{"interruption", "rebalance", "state", "scheduled", "other"} {
		m.notices.WithLabelValues(kind)
	}
	if c.Registerer == nil {
		return m, nil
	}
	empty := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "bigfleet_provider_aws_empty_pools", Help: "Pools (type, zone, capacity type) without capacity that are not tried now.",
	}, func() float64 { return float64(b.empty.count()) })
	r := prometheus.WrapRegistererWith(prometheus.Labels{"provider": c.Name}, c.Registerer)
	for _, one := range []prometheus.Collector{m.notices, m.queueErrors, empty} {
		if err := r.Register(one); err != nil {
			return nil, fmt.Errorf("aws: %w", err)
		}
	}
	return m, nil
}
