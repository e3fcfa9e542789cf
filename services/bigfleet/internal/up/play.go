package up

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// ready waits until the shard decides and every cluster has been heard; false when ctx ended before. What takes longer than it
// should is said once: a provider or a cluster from elsewhere may never answer.
func (w *World) ready(ctx context.Context) bool {
	slow := time.After(readyWithin)
	for {
		s := w.look(ctx).Status
		if s.GetReady() && int(s.GetSessions()) == len(w.Clusters) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-slow:
			w.view.log("not ready yet: %s; `bigfleet status` shows more", w.missing(s))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readyWithin is how soon a world is ready on two cores (OPS-5.1).
const readyWithin = 2 * time.Second

// missing says what a world waits for before it is ready.
func (w *World) missing(s *bigfleetv1alpha1.GetStatusResponse) string {
	var out []string
	for _, p := range s.GetProviders() {
		if p.GetInventoryAgeSeconds() < 0 {
			out = append(out, fmt.Sprintf("provider %s has not listed its machines: %s", p.GetAddress(), cmp.Or(p.GetLastError(), "no answer yet")))
		}
	}
	if n := len(w.Clusters) - int(s.GetSessions()); n > 0 {
		out = append(out, fmt.Sprintf("operators of %d of %d clusters are not connected", n, len(w.Clusters)))
	}
	return cmp.Or(strings.Join(out, "; "), strings.Join(s.GetNotReadyReasons(), "; "), "the shard does not answer")
}

// play runs the steps of a scenario.
func (w *World) play(ctx context.Context, s Scenario) error {
	if !w.ready(ctx) {
		return nil
	}
	if err := w.partition(ctx); err != nil {
		return err
	}
	var shards []string
	for _, s := range w.shards {
		shards = append(shards, s.listen)
	}
	w.view.log("ready: shard at %s, provider at %s, %s", strings.Join(shards, ", "), w.cfg.Providers[0].Addr, output.Count(len(w.Clusters), "cluster"))
	if !w.cfg.NoCoordinator {
		w.view.log("coordinator at %s", w.cfg.CoordinatorListen)
	}
	if len(w.cfg.Targets) == 0 {
		w.view.keep("kubectl and `bigfleet explain pod/…` see the clusters with:", "export KUBECONFIG="+w.cfg.Kubeconfig)
	}
	if w.consoleAddr != "" {
		w.view.keep("web UI:", "http://"+w.consoleAddr)
	}
	w.view.log("metrics of every role, for Prometheus' file_sd_configs: %s", w.scrapeFile)
	if at := w.stage.Addr().String(); at != DefaultDemoListen && at != w.cfg.DemoListen {
		w.view.keep("stories:", "bigfleet demo critical --at "+at)
	}
	begun, before := time.Now(), w.look(ctx)
	for _, step := range s.Steps {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(float64(step.After) / w.cfg.Speed)):
		}
		message := w.named(step.Message)
		w.view.log("%s", message)
		if err := step.Do(ctx, w); err != nil && ctx.Err() == nil {
			return fmt.Errorf("scenario %s, %q: %w", s.Name, message, err)
		}
	}
	if len(s.Steps) > 0 {
		w.close(ctx, begun, before)
	}
	return nil
}

// close ends a story with what it caused, once nothing moves any more.
func (w *World) close(ctx context.Context, begun time.Time, before frame) {
	if !w.still(ctx, closeWithin) {
		return
	}
	w.view.log("scenario complete, %s", inWords(w.numbers(ctx, begun, before, nil)))
}

// closeWithin is how long a story may continue moving before its numbers are printed nevertheless: unneeded machines are returned at the pace of the
// reclaim budget.
const closeWithin = time.Minute

// named puts the names of this world's clusters into what a scenario says of the first and the second one.
func (w *World) named(message string) string {
	for i, mark := range []string{"cluster 1", "cluster 2"} {
		if n := len(w.Clusters); n > 0 {
			message = strings.ReplaceAll(message, mark, "cluster "+w.Clusters[min(i, n-1)].ID())
		}
	}
	return message
}

// settleFor is how long nothing may move before a world is at rest.
const settleFor = 3 * time.Second

// settle waits until the picture has not changed for a while.
func (w *World) settle(ctx context.Context) error {
	if w.still(ctx, 0) {
		w.view.log("at rest")
	}
	return nil
}

// still waits until the picture has not changed for a while, every cluster is heard and no reclaim waits for its budget, at most so
// long if that is not 0; false when ctx ended before.
func (w *World) still(ctx context.Context, most time.Duration) bool {
	last, since, begun := "", time.Now(), time.Now()
	for ctx.Err() == nil {
		f := w.look(ctx)
		if now := summary(f); now != last || f.restless() {
			last, since = now, time.Now()
		}
		if time.Since(since) > w.pace(settleFor) || most > 0 && time.Since(begun) > most {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return false
}
