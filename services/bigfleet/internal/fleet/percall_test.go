package fleet

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"
)

// OPS-4.4, OPS-4.13: --timeout bounds each call. What asks a shard for page after page has no bound over all of them, and each of its
// calls has one of its own.
func TestTimeoutIsOfOneCall(t *testing.T) {
	f := New(Config{Timeout: time.Hour})
	answers, err := Each(t.Context(), f, []Shard{{ID: "shard-0"}}, "listing", func(ctx context.Context, _ Shard) (int, error) {
		if end, bounded := ctx.Deadline(); bounded {
			t.Errorf("all calls together end at %v", end)
		}
		var ends []time.Time
		call := perCall{}.WrapUnary(func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) {
			end, bounded := ctx.Deadline()
			if !bounded || time.Until(end) > time.Hour {
				t.Errorf("a call ends at %v, %v", end, bounded)
			}
			ends = append(ends, end)
			return nil, nil
		})
		for range 2 {
			if _, err := call(ctx, nil); err != nil {
				t.Error(err)
			}
		}
		if !ends[1].After(ends[0]) {
			t.Errorf("the second call ends at %v, no later than the first at %v", ends[1], ends[0])
		}
		perCall{}.WrapStreamingClient(func(ctx context.Context, _ connect.Spec) connect.StreamingClientConn {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a stream that is read to its end has no bound")
			}
			return nil
		})(ctx, connect.Spec{})
		return 1, nil
	})
	if err != nil || answers[0] == nil {
		t.Fatalf("%v, %v", answers, err)
	}
	perCall{}.WrapStreamingClient(func(ctx context.Context, _ connect.Spec) connect.StreamingClientConn {
		if _, bounded := ctx.Deadline(); bounded {
			t.Error("a stream that is followed has a bound")
		}
		return nil
	})(t.Context(), connect.Spec{})
}
