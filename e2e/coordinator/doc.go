// Package coordinator tests a group of three coordinator processes on real disks: killed, paused, cut off, with full
// disks, and restarted, under a load of writes and reads whose history is checked for linearizability.
//
// A history is made of attempts, not of calls that retry: an attempt whose outcome is unknown stays open to the end. The
// registers are provider rows (name = key, region = value), read with one list. The audit ring tells how often each
// acknowledged write was committed. The Raft links pass through proxies that read who dials in the first bytes, so that
// a single direction between two processes can be cut.
//
// Two real shards on one provider trade machines (fleet_test.go, rebalance_test.go), and 4,000 pretended ones report
// (scale_test.go).
//
// It never asserts a time. What it measures is printed, and appended to the file that BIGFLEET_COORDINATOR_RECORD names.
// BIGFLEET_COORDINATOR_KILLS sets how often the leader is killed, BIGFLEET_COORDINATOR_ROUNDS how often 4,000 shards
// report. Start at group_test.go.
package coordinator
