package hosts

import (
	"fmt"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	hostsDesc  = prometheus.NewDesc("bigfleet_provider_hosts", "Hosts of the inventory, by what their agents last reported.", []string{"phase"}, nil)
	silentDesc = prometheus.NewDesc("bigfleet_provider_hosts_silent", "Hosts whose agent is silent or has never reported.", nil, nil)
)

// registerMetrics adds what only this provider has.
func registerMetrics(c Config, b *backend) error {
	if c.Registerer == nil {
		return nil
	}
	if err := prometheus.WrapRegistererWith(prometheus.Labels{"provider": c.Name}, c.Registerer).Register(collector{b}); err != nil {
		return fmt.Errorf("hosts: %w", err)
	}
	return nil
}

type collector struct{ b *backend }

func (c collector) Describe(out chan<- *prometheus.Desc) {
	out <- hostsDesc
	out <- silentDesc
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	counts, silent := map[string]int{}, 0
	for phase := range pb.HostPhase_name {
		if phase != 0 {
			counts[phaseName(pb.HostPhase(phase))] = 0
		}
	}
	for _, h := range c.b.inventory.all() {
		r, at := c.b.hostAgents.last(h.Name)
		if r == nil || time.Since(at) >= c.b.config.Silence {
			silent++
		}
		if r != nil {
			counts[phaseName(r.GetPhase())]++
		}
	}
	for phase, n := range counts {
		out <- prometheus.MustNewConstMetric(hostsDesc, prometheus.GaugeValue, float64(n), phase)
	}
	out <- prometheus.MustNewConstMetric(silentDesc, prometheus.GaugeValue, float64(silent))
}
