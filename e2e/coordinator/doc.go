// Package coordinator tests a group of three coordinator processes on real disks: killed, paused, cut off, with full
// disks, and restarted, under a load of writes and reads whose history is checked for linearizability.
//
// A history is made of attempts, not of calls that retry: an attempt whose outcome is unknown stays open to the end. The
// registers are provider rows (name = key, region = value), read with one list. The audit ring tells how often each
// acknowledged write was committed. The Raft links pass through proxies that read who dials in the first bytes, so that
// a single direction between two processes can be cut.
//
// It never asserts a time. What it measures is printed, and recorded when BIGFLEET_BENCH_RECORD names a directory.
// BIGFLEET_COORDINATOR_KILLS sets how often the leader is killed. Start at group_test.go.
package coordinator
