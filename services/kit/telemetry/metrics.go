package telemetry

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics registers the metrics of one service under one prefix and makes sure that what is exposed is what was
// written: the name is prefix + name, nothing is appended, a counter ends in _total and nothing else does. Its
// constructors never fail; Err reports everything that was wrong at once, so call it after the last one.
//
// It is for start-up: constructors are not safe for concurrent use. What they return is.
type Metrics struct {
	reg    prometheus.Registerer
	prefix string
	rows   []MetricRow
	mine   []prometheus.Collector
	errs   []error
}

// MetricRow describes one metric, for the reference page (OPS-9.1).
type MetricRow struct {
	Name, Type, Help string
	Labels           []string
}

// NewMetrics returns a Metrics for names that start with prefix, for example "bigfleet_shard_".
func NewMetrics(reg prometheus.Registerer, prefix string) *Metrics {
	return &Metrics{reg: reg, prefix: prefix}
}

// SecondsBuckets are the classic buckets of every duration: from 1 ms, factor 1.5, 36 steps, up to 24 minutes
// (SHARD-29.2: powers of two hide a twofold change).
func SecondsBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 1.5, 36) }

// BytesBuckets are the classic buckets of sizes: from 64 B, factor 2, 24 steps, up to 512 MiB.
func BytesBuckets() []float64 { return prometheus.ExponentialBuckets(64, 2, 24) }

// Counter registers a counter. name ends in _total.
func (m *Metrics) Counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: m.prefix + name, Help: help})
	m.register("counter", name, help, nil, c)
	return c
}

// CounterVec registers a counter with labels. name ends in _total.
func (m *Metrics) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.prefix + name, Help: help}, labels)
	m.register("counter", name, help, labels, c)
	return c
}

// CounterFunc registers a counter that is read from f at each scrape. f must not block.
func (m *Metrics) CounterFunc(name, help string, f func() float64) {
	m.register("counter", name, help, nil, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: m.prefix + name, Help: help}, f))
}

// Gauge registers a gauge.
func (m *Metrics) Gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: m.prefix + name, Help: help})
	m.register("gauge", name, help, nil, g)
	return g
}

// GaugeVec registers a gauge with labels.
func (m *Metrics) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.prefix + name, Help: help}, labels)
	m.register("gauge", name, help, labels, g)
	return g
}

// GaugeFunc registers a gauge that is read from f at each scrape. f must not block.
func (m *Metrics) GaugeFunc(name, help string, f func() float64) {
	m.register("gauge", name, help, nil, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: m.prefix + name, Help: help}, f))
}

// Histogram registers a histogram of seconds, native and classic (SHARD-29.2). name ends in _seconds.
func (m *Metrics) Histogram(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(m.histogram(name, help, SecondsBuckets()))
	m.register("histogram", name, help, nil, h)
	return h
}

// HistogramVec is Histogram with labels.
func (m *Metrics) HistogramVec(name, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(m.histogram(name, help, SecondsBuckets()), labels)
	m.register("histogram", name, help, labels, h)
	return h
}

// HistogramOf registers a histogram of another unit with its own classic buckets, for example BytesBuckets.
func (m *Metrics) HistogramOf(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(m.histogram(name, help, buckets), labels)
	m.register("histogram", name, help, labels, h)
	return h
}

// Collector registers a collector of the caller's own making, for metrics that are computed at the scrape. Its names
// are checked like all others.
func (m *Metrics) Collector(c prometheus.Collector, rows ...MetricRow) {
	for _, row := range rows {
		if !strings.HasPrefix(row.Name, m.prefix) {
			m.errs = append(m.errs, fmt.Errorf("metric %s does not start with %s", row.Name, m.prefix))
		}
		m.check(row.Type, row.Name)
	}
	m.add(c, rows...)
}

// Err returns everything that was wrong with the constructors' arguments, or nil.
func (m *Metrics) Err() error { return errors.Join(m.errs...) }

// Table lists what was registered, by name.
func (m *Metrics) Table() []MetricRow {
	out := slices.Clone(m.rows)
	slices.SortFunc(out, func(a, b MetricRow) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Close unregisters everything, for a role that runs again in one process with the same registry.
func (m *Metrics) Close() {
	for _, c := range m.mine {
		m.reg.Unregister(c)
	}
	m.mine = nil
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: m.prefix + name, Help: help, Buckets: buckets,
		// Factor 1.1 as SHARD-29.2 says; the rest bounds the memory of a histogram whose values are wild.
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}
}

func (m *Metrics) register(kind, name, help string, labels []string, c prometheus.Collector) {
	m.check(kind, m.prefix+name)
	if help == "" {
		m.errs = append(m.errs, fmt.Errorf("metric %s%s has no help text", m.prefix, name))
	}
	m.add(c, MetricRow{Name: m.prefix + name, Type: kind, Help: help, Labels: labels})
}

func (m *Metrics) add(c prometheus.Collector, rows ...MetricRow) {
	if err := m.reg.Register(c); err != nil {
		m.errs = append(m.errs, err)
		return
	}
	m.mine, m.rows = append(m.mine, c), append(m.rows, rows...)
}

var metricName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// The text format appends these to a histogram's name, so no other metric may end in them.
var reserved = []string{"_bucket", "_sum", "_count"}

func (m *Metrics) check(kind, name string) {
	switch {
	case !metricName.MatchString(name):
		m.errs = append(m.errs, fmt.Errorf("metric %q: want lower case words joined by _", name))
	case (kind == "counter") != strings.HasSuffix(name, "_total"):
		m.errs = append(m.errs, fmt.Errorf("metric %s is a %s: counters end in _total, nothing else does", name, kind))
	}
	for _, suffix := range reserved {
		if strings.HasSuffix(name, suffix) {
			m.errs = append(m.errs, fmt.Errorf("metric %s ends in %s, which belongs to histograms", name, suffix))
		}
	}
}
