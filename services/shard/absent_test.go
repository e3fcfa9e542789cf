package shard_test

import (
	"net"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// A provider that does not answer at the start is named in the log once, not at each retry, and the shard waits for it. SHARD-30.1, SHARD-30.3.
func TestAbsentProviderIsSaidOnce(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, NewProvider(), func(c *shard.Config) { c.Providers = []shard.Provider{{Name: "gone", Addr: address}} })
	const line = "the provider cannot be listed"
	Eventually(t, "the log names the provider", func() bool { return strings.Contains(s.Log.String(), line) })
	Eventually(t, "the status names the failure", func() bool { return s.status(t).GetProviders()[0].GetLastError() != "" })
	if n := strings.Count(s.Log.String(), line); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, s.Log)
	}
	if s.status(t).GetReady() {
		t.Error("the shard is ready without ever having seen its provider")
	}
}
