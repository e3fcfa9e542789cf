// Package provider measures what section 25 of docs/spec/provider.md demands of the provider SDK, at the wire.
//
// The provider is a program of its own, this test binary started again, with a backend that does nothing but wait; callers
// are in the test. So its memory and its collector are its own, and each time is what a shard would see. Every benchmark
// runs beside a floor of the same work: a bare fsync, a bare Connect handler, bare protobuf encoding. What a clause bounds
// besides a ratio (p99, rates, seconds) stands in the bounds of the result.
//
// Results go where those of all benchmarks go, and so do the gates of `make bench-ci` (e2e/bench). One by hand:
//
//	go test ./bench/provider -run '^$' -bench . -benchtime 12x -cpu 2
//
// It must not import internals of the SDK: what it measures is what an author gets. Start at fleet_test.go.
package provider
