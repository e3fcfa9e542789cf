package console

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// orderStub notes the orders that reach a shard, with the person in whose name they come.
type orderStub struct {
	bigfleetv1alpha1connect.UnimplementedShardAdminHandler
	mu    sync.Mutex
	given []string
}

func (s *orderStub) PauseActuation(ctx context.Context, r *connect.Request[pb.PauseActuationRequest]) (*connect.Response[pb.PauseActuationResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := "pause"
	if r.Msg.GetValidateOnly() {
		what = "check"
	}
	s.given = append(s.given, what+" by "+r.Header().Get("bigfleet-actor")+": "+r.Msg.GetReason())
	return connect.NewResponse(&pb.PauseActuationResponse{Pause: &pb.Pause{PauseId: "p"}}), nil
}

func (s *orderStub) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.given, "; ")
	s.given = nil
	return out
}

func writing(c *Config) {
	c.AllowWrites, c.BehindProxy, c.AuthHeader, c.Writers, c.Hosts = true, true, "X-User", []string{"alice@example.com"}, []string{"127.0.0.1"}
}

const (
	pauseURL = "/bigfleet.v1alpha1.ShardAdmin/PauseActuation"
	pauseNow = `{"reason":"a bad image"}`
)

// OPS-6.2: an order reaches the shard when the proxy names a user who may give orders and a page of this console sent it, in the name of that
// user; whatever else is tried reaches no shard.
func TestOrders(t *testing.T) {
	stub := &orderStub{}
	base, _, _ := serveConsole(t, &shardStub{name: "red", orders: stub}, writing)
	own := []string{"bigfleet-target", "s0", "Origin", base, "Sec-Fetch-Site", "same-origin"}
	with := func(headers ...string) []string { return append(append([]string{}, own...), headers...) }
	eventually(t, "the shard is known", func() bool {
		status, _ := post(t, base+"/bigfleet.v1alpha1.ShardRead/GetStatus", "{}")
		return status == http.StatusOK
	})
	for _, c := range []struct {
		what, url, body string
		headers         []string
		status          int
		says            string
		reaches         string
	}{
		{"a writer", pauseURL, pauseNow, with("X-User", "alice@example.com"), 200, `"pauseId":"p"`, "pause by alice@example.com: a bad image"},
		{"a writer who looks first", pauseURL, `{"reason":"a bad image","validateOnly":true}`, with("X-User", "alice@example.com"), 200, "", "check by alice@example.com: a bad image"},
		{"a forged actor beside the proxy's name", pauseURL, pauseNow, with("X-User", "alice@example.com", "bigfleet-actor", "bob"), 200, "", "pause by alice@example.com: a bad image"},
		{"no reason", pauseURL, `{}`, with("X-User", "alice@example.com"), 400, "reason", ""},
		{"a reader", pauseURL, pauseNow, with("X-User", "bob@example.com"), 403, "--writers", ""},
		{"no user", pauseURL, pauseNow, own, 401, "no user is named", ""},
		{"an empty name", pauseURL, pauseNow, with("X-User", ""), 401, "no user is named", ""},
		{"two names", pauseURL, pauseNow, with("X-User", "bob@example.com", "X-User", "alice@example.com"), 401, "several users", ""},
		{"a long name", pauseURL, pauseNow, with("X-User", strings.Repeat("a", 129)), 401, "not one", ""},
		{"no page of the console", pauseURL, pauseNow, []string{"bigfleet-target", "s0", "X-User", "alice@example.com"}, 403, "a page of the console", ""},
		{"another site", pauseURL, pauseNow, []string{"bigfleet-target", "s0", "X-User", "alice@example.com", "Origin", "https://evil.example.com"}, 403, "another site", ""},
		{"a sandboxed page", pauseURL, pauseNow, []string{"bigfleet-target", "s0", "X-User", "alice@example.com", "Origin", "null"}, 403, "another site", ""},
		{"another site of the same domain", pauseURL, pauseNow, []string{"bigfleet-target", "s0", "X-User", "alice@example.com", "Sec-Fetch-Site", "same-site"}, 403, "another site", ""},
		{"a form", pauseURL, "reason=x", with("X-User", "alice@example.com", "Content-Type", "application/x-www-form-urlencoded"), 415, "", ""},
		{"an order that is the command's", "/bigfleet.v1alpha1.ShardAdmin/RetireCluster", `{"clusterId":"red","reason":"x"}`, with("X-User", "alice@example.com"), 403, "command line", ""},
		{"a mutation of the coordinator", "/bigfleet.v1alpha1.CoordinatorAdmin/DrainShard", `{"shardId":"s0"}`, with("X-User", "alice@example.com"), 403, "command line", ""},
		{"a shard that is not", pauseURL, pauseNow, append(with("X-User", "alice@example.com")[2:], "bigfleet-target", "s9"), 404, "not known", ""},
	} {
		status, body := post(t, base+c.url, c.body, c.headers...)
		if status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s: status %d, %s; want %d and %q", c.what, status, body, c.status, c.says)
		}
		if got := stub.taken(); got != c.reaches {
			t.Errorf("%s: the shard got %q, want %q", c.what, got, c.reaches)
		}
	}
}

// OPS-6.2: what a viewer may not do is not offered: the page asks who it is.
func TestWhoMayWrite(t *testing.T) {
	base, _, _ := serveConsole(t, &shardStub{name: "red", orders: &orderStub{}}, writing)
	for user, may := range map[string]bool{"alice@example.com": true, "bob@example.com": false, "": false} {
		_, body := post(t, base+"/bigfleet.v1alpha1.Console/GetSources", "{}", "X-User", user)
		if got := strings.Contains(body, `"writesAllowed":true`); got != may || user != "" && !strings.Contains(body, user) {
			t.Errorf("%q: %s", user, body)
		}
	}
	reads, _, _ := serveConsole(t, &shardStub{name: "red", orders: &orderStub{}})
	if _, body := post(t, reads+"/bigfleet.v1alpha1.Console/GetSources", "{}", "X-User", "alice@example.com"); strings.Contains(body, "writesAllowed") || strings.Contains(body, "alice") {
		t.Errorf("a console that only reads: %s", body)
	}
}

// OPS-6.2: orders need all of what says who gives them.
func TestConfigurationOfOrders(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"":                              func(*Config) {},
		"needs --behind-proxy":          func(c *Config) { c.BehindProxy = false },
		"--auth-header":                 func(c *Config) { c.AuthHeader = "" },
		"is not the name of a header":   func(c *Config) { c.AuthHeader = "X User" },
		"--writers":                     func(c *Config) { c.Writers = nil },
		"a name is empty":               func(c *Config) { c.Writers = []string{""} },
		"and --hosts":                   func(c *Config) { c.Hosts = nil },
		"do nothing without":            func(c *Config) { c.AllowWrites = false },
		"where --tls-cert is given":     func(c *Config) { c.TLS.Cert = "a" },
		"and none elsewhere; orders go": func(c *Config) { c.OrderTLS.Cert = "a" },
	} {
		c := Config{Shards: []string{"a=b:1"}}
		writing(&c)
		edit(&c)
		if err := c.check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
