package up

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// ready waits until the shard decides and every cluster has been heard.
func (w *World) ready(ctx context.Context) error {
	for ctx.Err() == nil {
		if s := w.look(ctx).Status; s.GetReady() && int(s.GetSessions()) == len(w.Clusters) {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// play runs the steps of a scenario.
func (w *World) play(ctx context.Context, s Scenario) error {
	if err := w.ready(ctx); err != nil {
		return err
	}
	if err := w.partition(ctx); err != nil {
		return err
	}
	var shards []string
	for _, s := range w.shards {
		shards = append(shards, s.listen)
	}
	w.view.say("ready: shard at %s, provider at %s, %d clusters", strings.Join(shards, " and "), w.cfg.Providers[0].Addr, len(w.Clusters))
	if !w.cfg.NoCoordinator {
		w.view.say("coordinator at %s", w.cfg.CoordinatorListen)
	}
	if len(w.cfg.Targets) == 0 {
		w.view.keep("kubectl and `bigfleet explain pod/…` see the clusters with:", "export KUBECONFIG="+w.cfg.Kubeconfig)
	}
	w.view.keep("metrics of every role, for Prometheus' file_sd_configs:", w.scrapeFile)
	if at := w.stage.Addr().String(); at != DefaultDemoListen {
		w.view.keep("stories:", "bigfleet demo critical --at "+at)
	}
	for _, step := range s.Steps {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(float64(step.After) / w.cfg.Speed)):
		}
		say := w.named(step.Say)
		w.view.say("%s", say)
		if err := step.Do(ctx, w); err != nil && ctx.Err() == nil {
			return fmt.Errorf("scenario %s, %q: %w", s.Name, say, err)
		}
	}
	return nil
}

// named puts the names of this world's clusters into what a scenario says of the first and the second one.
func (w *World) named(say string) string {
	for i, mark := range []string{"cluster 1", "cluster 2"} {
		if n := len(w.Clusters); n > 0 {
			say = strings.ReplaceAll(say, mark, "cluster "+w.Clusters[min(i, n-1)].ID())
		}
	}
	return say
}

// settleFor is how long nothing may move before a world is at rest.
const settleFor = 3 * time.Second

// settle waits until every Pod runs or the picture has not changed for a while.
func (w *World) settle(ctx context.Context) error {
	last, since := "", time.Now()
	for ctx.Err() == nil {
		now := summary(w.look(ctx))
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > settleFor {
			w.view.say("at rest")
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
