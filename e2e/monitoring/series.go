package monitoring

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Start is the time of the first sample.
var Start = time.Unix(1_000_000, 0).UTC()

// Series are samples in memory, which Prometheus' engine can query.
type Series struct{ all map[string]*one }

type one struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// Write adds a series in promtool's notation, one sample a minute: `up{job="x"} 0 1 _ 1+1x10`.
func (s *Series) Write(lines ...string) error {
	for _, line := range lines {
		set, values, err := parser.ParseSeriesDesc(line)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		for i, v := range values {
			if !v.Omitted {
				s.add(set, Start.Add(time.Duration(i)*time.Minute), v.Value)
			}
		}
	}
	return nil
}

// Scrape adds what a program exposes, as of a time.
func (s *Series) Scrape(exposition io.Reader, at time.Time) error {
	return s.scrape(exposition, at, labels.EmptyLabels())
}

// ScrapeTarget is Scrape with what Prometheus adds itself: job and instance on every series, and the series up.
func (s *Series) ScrapeTarget(exposition io.Reader, at time.Time, job, instance string) error {
	target := labels.FromStrings(model.JobLabel, job, model.InstanceLabel, instance)
	b := labels.NewBuilder(target)
	b.Set(model.MetricNameLabel, "up")
	s.add(b.Labels(), at, 1)
	return s.scrape(exposition, at, target)
}

func (s *Series) scrape(exposition io.Reader, at time.Time, target labels.Labels) error {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(exposition)
	if err != nil {
		return err
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			b := labels.NewBuilder(target)
			for _, pair := range m.GetLabel() {
				b.Set(pair.GetName(), pair.GetValue())
			}
			put := func(suffix string, v float64, more ...string) {
				b.Set(model.MetricNameLabel, name+suffix)
				for i := 0; i < len(more); i += 2 {
					b.Set(more[i], more[i+1])
				}
				s.add(b.Labels(), at, v)
			}
			switch family.GetType() {
			case dto.MetricType_HISTOGRAM:
				put("_sum", m.GetHistogram().GetSampleSum())
				put("_count", float64(m.GetHistogram().GetSampleCount()))
				for _, bucket := range m.GetHistogram().GetBucket() {
					put("_bucket", float64(bucket.GetCumulativeCount()), "le", fmt.Sprint(bucket.GetUpperBound()))
				}
			default:
				put("", m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetUntyped().GetValue())
			}
		}
	}
	return nil
}

func (s *Series) add(set labels.Labels, at time.Time, v float64) {
	if s.all == nil {
		s.all = map[string]*one{}
	}
	key := set.String()
	if s.all[key] == nil {
		s.all[key] = &one{labels: set}
	}
	s.all[key].samples = append(s.all[key].samples, sample{at.UnixMilli(), v})
}

// Labels are the label names of a metric over all its series; none means that there is no such metric.
func (s *Series) Labels(metric string) map[string]bool {
	names := map[string]bool{}
	for _, o := range s.all {
		if o.labels.Get(model.MetricNameLabel) == metric {
			o.labels.Range(func(l labels.Label) { names[l.Name] = true })
		}
	}
	return names
}

// Querier implements storage.Queryable.
func (s *Series) Querier(int64, int64) (storage.Querier, error) { return querier{s}, nil }

type querier struct{ s *Series }

// Select implements storage.Querier. The engine itself leaves out samples outside of what it asked for.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, o := range q.s.all {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(o.labels.Get(m.Name)) }) {
			found = append(found, storage.NewListSeries(o.labels, o.samples))
		}
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return strings.Compare(a.Labels().String(), b.Labels().String()) })
	return &set{found, -1}
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
