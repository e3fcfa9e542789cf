package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

func main() {
	rounds := flag.Int("rounds", 2, "turns of each side")
	out := flag.String("out", "", "file that the page is written to; empty means stdout")
	scale := flag.Float64("scale", 1, "part of the published size")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *scale, *out); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, scale float64, out string) (err error) {
	types := catalogue()
	karpenter, err := buildKarpenter(ctx)
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
	theirs, err := newPeer(ctx, f, karpenter, types)
	if err != nil {
		return err
	}
	if err := ours.stop(); err != nil {
		return err
	}
	var all []figures
	for round := range rounds {
		order := []side{ours, theirs}
		if round%2 == 1 {
			order = []side{theirs, ours}
		}
		for _, s := range order {
			for _, scene := range scenes(scale) {
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
	text := page(all, scale)
	if out == "" {
		_, err = fmt.Print(text)
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}
