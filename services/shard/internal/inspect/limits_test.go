package inspect

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// SHARD-23.5: questions beside the loop use at most a tenth of a core, averaged over a minute; older ones do not count.
func TestQuestionsHaveABudget(t *testing.T) {
	s, now := newStudies(), time.Now()
	s.past = []spent{{now.Add(-2 * time.Minute), time.Hour}, {now.Add(-30 * time.Second), 4 * time.Second}, {now.Add(-time.Second), time.Second}}
	if got := s.share(now); got != 5*time.Second {
		t.Errorf("%s within the last minute", got)
	}
	x := New(Config{})
	x.studies.past = []spent{{now, studyShare}}
	if _, err := study(t.Context(), x, func(*core.Study) int { return 1 }); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("over the budget: %v", err)
	}
}

// WIRE-9.1: tokens are opaque, come back as they were, and nothing else is taken for one.
func TestTokens(t *testing.T) {
	keys, err := untoken(token("a", "b\x01c"), 2)
	if err != nil || keys[0] != "a" || keys[1] != "b\x01c" {
		t.Errorf("%q, %v", keys, err)
	}
	for _, bad := range []string{"x", token("a"), "====", token("a", "b", "c")} {
		if _, err := untoken(bad, 2); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// WIRE-9.1: any text as a page token is refused, or gives as many keys as were asked for; it never panics.
func FuzzPageToken(f *testing.F) {
	f.Add(token("a", "b"), 2)
	f.Add(token(), 0)
	f.Add("!", 1)
	f.Add("MQ", 1)
	f.Fuzz(func(t *testing.T, text string, n int) {
		keys, err := untoken(text, n)
		if err == nil && text != "" && len(keys) != n {
			t.Errorf("%d keys of %d", len(keys), n)
		}
		if err == nil && text != "" && token(keys...) == "" {
			t.Error("no token of keys that were read")
		}
	})
}
