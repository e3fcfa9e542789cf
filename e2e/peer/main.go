package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

func main() {
	rounds := flag.Int("rounds", 2, "turns of each side")
	out := flag.String("out", "", "file that the page is written to; empty means stdout")
	scale := flag.Float64("scale", 1, "part of the published size")
	scene := flag.String("scene", "", "the only scene to play: burst, mix or day; empty means all")
	alone := flag.Bool("alone", false, "play BigFleet's turns only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, config{*rounds, *scale, *scene, *alone}, *out); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		stop()
		os.Exit(1)
	}
}

type config struct {
	rounds int
	scale  float64
	scene  string
	alone  bool
}

// scenes are those that are played.
func (cfg config) scenes() ([]scene, error) {
	all := scenes(cfg.scale)
	if cfg.scene == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(s scene) bool { return s.name == cfg.scene })
	if i < 0 {
		return nil, fmt.Errorf("there is no scene %q: burst, mix, day", cfg.scene)
	}
	return all[i : i+1], nil
}

func run(ctx context.Context, cfg config, out string) (err error) {
	types := catalogue()
	played, err := cfg.scenes()
	if err != nil {
		return err
	}
	f, err := fixture.Start(ctx, fixture.Config{
		Offerings: offerings(types), Progress: os.Stderr,
		ShardArgs:    []string{"--release-delay", (giveBackAfter / 2).String(), "--release-delay-empty", (giveBackAfter / 2).String()},
		OperatorArgs: []string{"--demand-hold", (giveBackAfter / 2).String()},
	})
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Stop(); err == nil {
			err = e
		}
	}()
	c := f.Clusters[0]
	if err := c.AddControlPlaneNode(ctx); err != nil {
		return err
	}
	ours := &bigfleet{f}
	sides := []side{ours}
	if !cfg.alone {
		karpenter, err := buildKarpenter(ctx)
		if err != nil {
			return err
		}
		theirs, err := newPeer(ctx, f, karpenter, types)
		if err != nil {
			return err
		}
		sides = append(sides, theirs)
	}
	if err := ours.stop(); err != nil {
		return err
	}
	var all []figures
	for round := range cfg.rounds {
		if round > 0 {
			slices.Reverse(sides)
		}
		for _, s := range sides {
			for _, scene := range played {
				begun := time.Now()
				got, err := play(ctx, c, s, scene, types)
				if err != nil {
					return fmt.Errorf("round %d, %s, %s: %w", round, s.name(), scene.name, err)
				}
				for i := range got {
					got[i].round = round
					fmt.Fprintln(os.Stderr, got[i])
				}
				fmt.Fprintf(os.Stderr, "round %d, %s, %s took %.0f s\n", round, s.name(), scene.name, time.Since(begun).Seconds())
				all = append(all, got...)
			}
		}
	}
	text := page(all, cfg.scale)
	if out == "" {
		_, err = fmt.Print(text)
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}
