// Command demo is `make demo`: BigFleet's main job on a real control plane on this machine. (`make demo REAL=1` is a test of e2e/real.)
//
// It starts everything, lets a Deployment ask for more than its cluster has, tells what happens as it happens, scales to zero,
// and waits until the machines are returned. It exits 0 only when all of that took place. With --keep it leaves everything
// running until interrupted and says how to look around.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// offerings has room for the Deployment on spot machines, which are given back one minute after they fall idle.
const offerings = `
offerings:
- {name: small, instance_type: demo.4x, zone: demo-1a, capacity_type: spot, count: 20, price_per_hour: 0.08, interruption_probability: 0.01, resources: {cpu: "4", memory: 16Gi}}
- {name: large, instance_type: demo.16x, zone: demo-1b, capacity_type: on_demand, count: 5, price_per_hour: 0.80, resources: {cpu: "16", memory: 64Gi}}
`

const (
	pods     = 20
	machines = 5 // 20 Pods of 1 cpu on machines of 4
	patience = 4 * time.Minute
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// story prints lines with the time since it began.
type story struct {
	out   io.Writer
	start time.Time
}

func (s story) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "%7.1fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

func run(ctx context.Context, out io.Writer, keep bool) (err error) {
	log := story{out, time.Now()}
	s, err := fixture.Start(ctx, fixture.Config{
		Offerings: offerings, Progress: out,
		// The budget that spaces reclaims would stretch the demo; everything else is as in production.
		ShardArgs: []string{"--reclaim-cap-fraction", "1"},
	})
	if err != nil {
		return err
	}
	defer func() {
		log.say("stopping")
		if err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(out, s.Logs(30))
		}
		err = errors.Join(err, s.Stop())
	}()
	if err := s.Clusters[0].AddControlPlaneNode(ctx); err != nil {
		return err
	}
	if err := s.Settled(ctx); err != nil {
		return err
	}
	log.say("ready: one cluster with no Node but its control plane's, a shard, a provider with 25 machines to sell")
	if err := acquire(ctx, log, s); err != nil {
		return err
	}
	if keep {
		lookAround(out, s)
		<-ctx.Done()
		return nil
	}
	return giveBack(ctx, log, s)
}

func acquire(ctx context.Context, log story, s *fixture.Fixture) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the Pods did not all run in time"))
	defer cancel()
	red := s.Clusters[0]
	clock, err := red.WatchPods(ctx)
	if err != nil {
		return err
	}
	log.say("a Deployment asks for %d Pods of 1 cpu", pods)
	if err := red.Deploy(ctx, fixture.Workload{Name: "web", Replicas: pods, CPU: "1", Memory: "1Gi"}); err != nil {
		return err
	}
	picture := func(p fixture.Picture) { log.say("%s", p) }
	err = s.Until(ctx, red, picture, func(p fixture.Picture) bool {
		return p.PodsRunning == pods && p.Requests["Acknowledged"] == pods && p.Upcoming["Ready"] == machines
	})
	took := clock.Stop()
	if err != nil {
		return err
	}
	log.say("all %d Pods run on %d machines; Pod created to Pod Running: %s", pods, machines, took)
	return nil
}

func giveBack(ctx context.Context, log story, s *fixture.Fixture) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the machines were not returned in time"))
	defer cancel()
	red := s.Clusters[0]
	log.say("the Deployment is scaled to zero")
	if err := red.Scale(ctx, "web", 0); err != nil {
		return err
	}
	picture := func(p fixture.Picture) { log.say("%s", p) }
	if err := s.Until(ctx, red, picture, func(p fixture.Picture) bool {
		return p.Nodes == 0 && len(p.Upcoming) == 0 && p.Machines["idle"] == machines
	}); err != nil {
		return err
	}
	log.say("the machines are drained and idle; spot machines are kept for one minute in case a Pod needs them")
	if err := s.Until(ctx, red, picture, func(p fixture.Picture) bool { return p.Machines["speculative"] == 25 }); err != nil {
		return err
	}
	log.say("every machine was returned")
	return nil
}

func lookAround(out io.Writer, s *fixture.Fixture) {
	red := s.Clusters[0]
	_, _ = fmt.Fprintf(out, `
Everything keeps running until you press Ctrl-C. Look around, in a second terminal, from the root of
the repository:

  export KUBECONFIG=%s
  export SHARD=%s
  export PROVIDER=%s

  %s get nodes,upcomingnodes,capacityrequests,pods
  go run ./services/bigfleet status --shard $SHARD
  go run ./services/bigfleet get needs --shard $SHARD
  curl -H 'Content-Type: application/json' -d '{"maxResults":3}' http://$PROVIDER/bigfleet.v1alpha1.CapacityProvider/List
  curl -H 'Content-Type: application/json' -d '{}' http://$SHARD/bigfleet.v1alpha1.ShardRead/GetStatus

Logs: %s/logs
`, red.Kubeconfig(), s.ShardAddr, s.ProviderAddr, red.Kubectl(), s.Dir())
}
