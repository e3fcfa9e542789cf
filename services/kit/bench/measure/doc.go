// Package measure compares a subject with the physical floor of the same work, on the same machine in the same minute.
//
// One round runs floor A and subject B in the order A B B A and gives one ratio, the sum of B over the sum of A. Warm-up
// rounds are thrown away, at least ten are kept, and the result is the median ratio with the interval that holds the
// true median with about 98 %. An oracle checks each timed output outside the timed part; a wrong answer is an error and
// prints no time. Garbage collection stays on, with one forced collection before each timed part.
//
// Compare is for benchmarks (one iteration is one round), Run for programs. A Recorder appends Results as JSON lines,
// with machine and commit, and refuses a dirty tree.
//
// It is test gear: a dependency test keeps it out of every binary. It never drops an outlier; a round goes only when the
// machine itself was at fault (a clock step, swapping), and the result says so.
//
// Start at Compare and Pair.
package measure
