package up

import (
	"context"
	"errors"

	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/inclusters"
	"github.com/bigfleet-dev/bigfleet/services/console"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// addConsole serves the web UI over the same RPC ports as any console. It reads and never writes, so a world is none the worse without it.
func (w *World) addConsole(g *process.Group) error {
	if w.cfg.ConsoleListen == telemetry.Off {
		return nil
	}
	asked := w.cfg.ConsoleListen
	p, err := hold(asked, "--console")
	if asked == "" {
		if p, err = hold(console.ListenDefault, "--console"); err != nil {
			p, err = hold("127.0.0.1:0", "--console")
		}
	}
	if err != nil {
		return err
	}
	w.ports, w.consoleAddr = append(w.ports, p), p.addr
	var shards []string
	for _, s := range w.shards {
		if w.cfg.NoCoordinator {
			shards = append(shards, s.id+"="+s.listen)
		}
	}
	configs, order := map[string]*rest.Config{}, []string{}
	for _, x := range w.Clusters {
		configs[x.ID()], order = x.rest, append(order, x.ID())
	}
	pods, err := inclusters.New(configs, order)
	if err != nil {
		return err
	}
	c := console.Config{Listen: p.addr, Shards: shards, Sentence: w.cfg.Sentence, Clusters: pods}
	if at := w.coordinatorAddr(); at != "" {
		c.Coordinators = []string{at}
	}
	run := w.equipped("console", nil, func(ctx context.Context, tel *telemetry.Telemetry, _ []*telemetry.OpsPort) error {
		l, err := p.listen(ctx)
		if err != nil {
			return err
		}
		c := c
		c.Telemetry, c.Listener = tel, l
		return console.Run(ctx, c)
	})
	g.Add(process.Component{Name: "console", Kind: process.Restarts, Run: func(ctx context.Context) error {
		if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			w.view.log("the console stopped: %v", err)
			return err
		}
		return nil
	}})
	return nil
}
