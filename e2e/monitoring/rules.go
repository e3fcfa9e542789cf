package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// Rules reads a file of alert rules as Prometheus does.
func Rules(file string) ([]rulefmt.Rule, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errors.Join(errs...))
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}

// Engine is Prometheus' own.
func Engine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
}

// Fires says which alerts of a rule fire at a time after Start, by their labels. It evaluates once a minute.
func Fires(ctx context.Context, e *promql.Engine, r rulefmt.Rule, s *Series, at time.Duration) ([]map[string]string, error) {
	pending := map[string]time.Time{} // by labels, since when the expression has held
	var firing []map[string]string
	for t := Start; !t.After(Start.Add(at)); t = t.Add(time.Minute) {
		found, err := Ask(ctx, e, s, r.Expr, t)
		if err != nil {
			return nil, err
		}
		held := map[string]time.Time{}
		firing = nil
		for _, one := range found {
			key := one.String()
			if held[key] = t; !pending[key].IsZero() {
				held[key] = pending[key]
			}
			if t.Sub(held[key]) >= time.Duration(r.For) {
				set := one.Map()
				for name, value := range r.Labels {
					set[name] = value
				}
				firing = append(firing, set)
			}
		}
		pending = held
	}
	return firing, nil
}

// Ask evaluates an expression and returns the labels of its answer.
func Ask(ctx context.Context, e *promql.Engine, s *Series, expr string, at time.Time) ([]labels.Labels, error) {
	q, err := e.NewInstantQuery(ctx, s, nil, expr, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	defer q.Close()
	v, err := q.Exec(ctx).Vector()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	var out []labels.Labels
	for _, one := range v {
		out = append(out, one.Metric)
	}
	return out, nil
}

// Selectors are the metrics that an expression names, with the labels it asks of each.
func Selectors(expr string) (map[string][]string, error) {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	out := map[string][]string{}
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			out[v.Name] = append(out[v.Name], model.MetricNameLabel)
			for _, m := range v.LabelMatchers {
				out[v.Name] = append(out[v.Name], m.Name)
			}
		}
		return nil
	})
	return out, nil
}

// Dashboard is what a test looks at in Grafana's JSON.
type Dashboard struct {
	Title, UID string
	Panels     []Panel
}

// Panel is one picture.
type Panel struct {
	Title, Description string
	Links              []struct{ URL string }
	Targets            []struct{ Expr, LegendFormat string }
}

// ReadDashboard reads Grafana's JSON.
func ReadDashboard(file string) (d Dashboard, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(text, &d)
}
