package serve

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are the metrics that a console counts up itself.
type counters struct{ refused, orders prometheus.Counter }

// meter registers the metrics of a console.
func (c *Console) meter() (*counters, error) {
	m := c.Telemetry.Metrics("bigfleet_console_")
	m.GaugeFunc("viewers", "Streams of browsers that are open.", func() float64 { return float64(c.viewers.Load()) })
	m.GaugeFunc("source_age_seconds", "Age of the oldest answer among the sources; one that never answered counts since the start of the console.", c.oldest(time.Now()))
	m.GaugeFunc("sources_failing", "Sources whose newest question failed.", func() (n float64) {
		for _, s := range c.Sources.Statuses() {
			if s.GetConfigured() && s.GetError() != "" {
				n++
			}
		}
		return n
	})
	out := &counters{
		refused: m.Counter("viewers_refused_total", "Streams refused because there were as many as --viewers allows."),
		orders:  m.Counter("orders_total", "Orders of people that were forwarded to shards, without those that were only checked."),
	}
	return out, m.Err()
}

func (c *Console) oldest(start time.Time) func() float64 {
	return func() float64 {
		at := time.Now()
		for _, s := range c.Sources.Statuses() {
			if !s.GetConfigured() {
				continue
			}
			last := start
			if n := s.GetLastDataAtUnixNanos(); n > 0 {
				last = time.Unix(0, n)
			}
			if last.Before(at) {
				at = last
			}
		}
		return time.Since(at).Seconds()
	}
}
