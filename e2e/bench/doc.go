// Package bench turns recorded results of the benchmark programme into what people read and what a build checks.
//
// Read collects the newest line of every benchmark, size and GOMAXPROCS from the files in docs/benchmarks/results. Table
// writes docs/benchmarks.md and Chart its picture; both give the same bytes for the same results. Gates compares the
// lines of one run with gates.yaml.
//
// It measures nothing and changes no number: a target that is not met is shown as not met. The benchmarks themselves
// stand beside the code they measure; kit/bench/measure records them.
package bench
