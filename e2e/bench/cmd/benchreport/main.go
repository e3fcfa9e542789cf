// Command benchreport writes docs/benchmarks.md and its pictures from recorded results, or checks one run
// against gates. Exit 0: done, or all gates passed; 1: a gate failed, or -check found the files out of date; 2: could not.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bigfleet-dev/bigfleet/e2e/bench"
)

func main() { os.Exit(run()) }

func run() int {
	results := flag.String("results", "../docs/benchmarks/results", "directory with result files")
	docs := flag.String("docs", "../docs", "directory of benchmarks.md")
	gates := flag.String("gates", "", "compare with this gates.yaml instead of writing")
	check := flag.Bool("check", false, "fail if the files are not what would be written")
	flag.Parse()
	all, err := bench.ReadAll(*results)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		return 2
	}
	if *gates != "" {
		limits, err := bench.ReadGates(*gates)
		if err != nil {
			fmt.Fprintln(os.Stderr, "benchreport:", err)
			return 2
		}
		failed := bench.Check(limits, bench.Newest(all))
		for _, f := range failed {
			fmt.Println("FAILED", f.Text)
		}
		if len(failed) > 0 {
			return 1
		}
		fmt.Printf("%d gates passed\n", len(limits))
		return 0
	}
	code := 0
	for name, text := range bench.Report(all) {
		path := filepath.Join(*docs, filepath.FromSlash(name))
		if *check {
			old, err := os.ReadFile(path)
			if err != nil || string(old) != text {
				fmt.Println(path, "is out of date: run make bench-report")
				code = 1
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "benchreport:", err)
			return 2
		}
	}
	return code
}
