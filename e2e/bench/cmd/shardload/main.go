// Command shardload runs B6a, B9 and B13 of the benchmark programme: one real shard process, and its peers in another one.
//
//	go run ./bench/cmd/shardload -bench B9 -sessions 5000
//	go run ./bench/cmd/shardload -bench B6a -machines 500000
//	go run ./bench/cmd/shardload -bench B13 -sessions 1000
//
// It builds bigfleet-shard, starts itself again as the peers, measures the shard from outside (/proc, its status), and
// appends the result to the directory in BIGFLEET_BENCH_RESULTS. Load generators keep their schedule whatever the shard does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

type settings struct {
	bench, role, addr    string
	debug                string
	sessions, machines   int
	needs                int
	minutes              int
	warm, window, period time.Duration
}

// followParent ends the process when the one that started it is gone: what is left of a run would take the machine from
// the next one. Children are killed with their parent by the kernel (Pdeathsig); this is for the parent itself.
func followParent(parent int) {
	for range time.Tick(500 * time.Millisecond) {
		if os.Getppid() != parent {
			fmt.Fprintln(os.Stderr, "the process that started this one is gone")
			os.Exit(1)
		}
	}
}

func main() {
	var s settings
	flag.StringVar(&s.bench, "bench", "B9", "B6a, B9 or B13")
	flag.StringVar(&s.role, "role", "", "what a child does; set by the command itself")
	flag.StringVar(&s.addr, "addr", "", "the shard's address, for a child")
	flag.StringVar(&s.debug, "debug", "", "where the shard shows its metrics and profiles meanwhile; empty: nowhere")
	flag.IntVar(&s.sessions, "sessions", 5_000, "operators of B9")
	flag.IntVar(&s.machines, "machines", 500_000, "warm machines of B6a")
	flag.IntVar(&s.needs, "needs", 50_000, "needs of B13")
	flag.IntVar(&s.minutes, "minutes", 10, "minutes for which B13 watches the memory of a tab")
	flag.DurationVar(&s.warm, "warm", 20*time.Second, "time before anything counts")
	flag.DurationVar(&s.window, "window", 40*time.Second, "time that counts")
	flag.DurationVar(&s.period, "period", 10*time.Second, "time between two roll-ups of one operator of B9")
	flag.Parse()
	ctx := context.Background()
	go followParent(os.Getppid())
	run := map[string]func(context.Context, settings) error{"operators": operators, "churn": churn, "provider": provide, "reaction": reaction, "conns": bareConns, "bareserver": bareServer,
		"world": provideWorld, "steady": steady, "B13": runB13,
		"B9": runB9, "B6a": runB6a}[s.role+map[bool]string{true: s.bench}[s.role == ""]]
	if run == nil {
		fmt.Fprintln(os.Stderr, "unknown benchmark or role")
		os.Exit(2)
	}
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
