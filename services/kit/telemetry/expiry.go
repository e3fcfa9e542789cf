package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

const expiryHelp = "Seconds until the certificate of this process (use=leaf) or the CA that signed it (use=ca) expires; negative after that."

// expiry reads the certificate in force at each scrape.
type expiry struct{ source *identity.Source }

func expiryDesc() *prometheus.Desc {
	return prometheus.NewDesc("bigfleet_certificate_expiry_seconds", expiryHelp, []string{"use"}, nil)
}

func (e *expiry) Describe(out chan<- *prometheus.Desc) { out <- expiryDesc() }

func (e *expiry) Collect(out chan<- prometheus.Metric) {
	leaf, ca := e.source.Expiry()
	desc := expiryDesc()
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, time.Until(leaf).Seconds(), "leaf")
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, time.Until(ca).Seconds(), "ca")
}

func closeMetrics(m *Metrics) func(context.Context) error {
	return func(context.Context) error {
		m.Close()
		return nil
	}
}
