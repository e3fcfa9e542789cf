package operator

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// OP-2.2: what has bounds is refused one past them with the flag and the bounds, and taken at them; zero is the default.
func TestBounds(t *testing.T) {
	duration := func(field func(*Config) *time.Duration) func(*Config, float64) {
		return func(c *Config, v float64) { *field(c) = time.Duration(v * float64(time.Second)) }
	}
	for flag, b := range map[string]struct {
		set       func(*Config, float64)
		min, most float64
		step      float64
	}{
		"rollup-debounce":           {duration(func(c *Config) *time.Duration { return &c.RollupDebounce }), 0.001, 10, 0.0005},
		"rollup-interval":           {duration(func(c *Config) *time.Duration { return &c.RollupInterval }), 1, 300, 0.001},
		"reconnect-max-backoff":     {duration(func(c *Config) *time.Duration { return &c.ReconnectMax }), 0.001, 3600, 0.0005},
		"bootstrap-ttl":             {duration(func(c *Config) *time.Duration { return &c.BootstrapTTL }), 120, 86400, 1},
		"node-join-timeout":         {duration(func(c *Config) *time.Duration { return &c.NodeJoinTimeout }), 1, 86400, 0.1},
		"node-not-ready-after":      {duration(func(c *Config) *time.Duration { return &c.NodeNotReadyAfter }), 1, 86400, 0.1},
		"drained-node-timeout":      {duration(func(c *Config) *time.Duration { return &c.DrainedNodeTimeout }), 1, 86400, 0.1},
		"demand-hold":               {duration(func(c *Config) *time.Duration { return &c.DemandHold }), 1, 3600, 0.1},
		"cache-sync-timeout":        {duration(func(c *Config) *time.Duration { return &c.CacheSyncTimeout }), 1, 3600, 0.1},
		"dispatch-concurrency":      {func(c *Config, v float64) { c.DispatchConcurrency = int(v) }, 0, 256, 1},
		"ack-concurrency":           {func(c *Config, v float64) { c.AckConcurrency = int(v) }, 0, 256, 1},
		"ack-qps":                   {func(c *Config, v float64) { c.AckQPS = v }, 0, 10_000, 0.5},
		"bootstrap-token-pool":      {func(c *Config, v float64) { c.BootstrapTokenPool = int(v) }, 0, 1024, 1},
		"reconnect-initial-backoff": {func(c *Config, v float64) { c.ReconnectMin, c.ReconnectMax = time.Duration(v*1e9), time.Hour }, 0.001, 3600, 0.0005},
	} {
		for value, fine := range map[float64]bool{0: true, b.min: true, b.most: true, b.min - b.step: false, b.most + b.step: false, -1: false} {
			c := Config{ClusterID: "red", ShardAddr: "a:1"}
			b.set(&c, value)
			err := c.check()
			if fine && err != nil {
				t.Errorf("--%s %v: %v", flag, value, err)
			}
			if !fine && (err == nil || !strings.Contains(err.Error(), "--"+flag+" ") || !strings.Contains(err.Error(), "want ")) {
				t.Errorf("--%s %v: %v, want an error that names the flag and what is allowed", flag, value, err)
			}
		}
	}
}

// OP-2.2: a time that tokens cannot end with is refused and not rounded.
func TestBootstrapTTLIsWholeSeconds(t *testing.T) {
	for ttl, want := range map[time.Duration]string{10 * time.Minute: "", 121 * time.Second: "", 10*time.Minute + time.Millisecond: "whole seconds", 150*time.Second - 1: "whole seconds"} {
		err := (&Config{ClusterID: "red", ShardAddr: "a:1", BootstrapTTL: ttl}).check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "--bootstrap-ttl "+ttl.String()+": want "+want) {
			t.Errorf("--bootstrap-ttl %v: %v, want %q", ttl, err, want)
		}
	}
}

// OP-3.6: what cannot be dialled is said at the start.
func TestShardAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"shard:7780": "", "[::1]:65535": "", "shard:https": "", "shard": "host:port", "https://shard:7780": "host:port", "shard:0": "between 1 and 65535",
		"shard:65536": "between 1 and 65535", "shard:99999999999999999999": "between 1 and 65535",
	} {
		err := (&Config{ClusterID: "red", ShardAddr: addr}).check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--shard-addr %s: %v, want %q", addr, err, want)
		}
	}
}
