package console

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// named is a proxy in front of a console that knows one person.
func named(t *testing.T, console, user string) string {
	t.Helper()
	to, err := url.Parse("http://" + console)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("X-User", user)
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An answer may begin before the end of the question is read; without this the server takes the rest away, and the proxy ends the answer.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// OPS-6.2: behind a proxy that knows people, who may give orders pauses and resumes a shard from its page, sees first what that does, and is
// named in the record; who may only look is offered nothing and refused, and so are other sites' pages.
func TestOrders(t *testing.T) {
	web(t)
	at := addresses(t, 9)
	proc.StartT(t, proc.Config{Name: "up", Path: proc.BuildT(t, program), Args: []string{"up", "--scenario", "testdata/story.txt", "--speed", "4", "--console", at[2],
		"--shard-listen", at[3], "--coordinator-listen", at[4], "--raft-bind", at[5], "--provider-listen", at[6], "--demo-listen", at[7], "--control-listen", at[8],
		"--shard-metrics-addr", "0", "--coordinator-metrics-addr", "0"}, Ready: proc.HTTP("http://"+at[2], nil)})
	f := newFleet(t, "http://"+at[2])
	proc.StartT(t, proc.Config{Name: "orders", Path: proc.BuildT(t, program), Args: []string{"console", "--listen", at[0], "--metrics-addr", at[1], "--coordinator", at[4], "--log-level", "warn",
		"--allow-writes", "--behind-proxy", "--hosts", "127.0.0.1", "--auth-header", "X-User", "--writers", "alice@example.com"}, Ready: proc.HTTP("http://"+at[1]+"/readyz", nil)})
	browse(t, "orders.mjs", []string{"READER=" + named(t, at[0], "bob@example.com")}, named(t, at[0], "alice@example.com"))
	got, err := f.read.GetMachineHistory(t.Context(), connect.NewRequest(&v1.GetMachineHistoryRequest{PageSize: 5000}))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	named := 0
	for _, r := range got.Msg.GetRecords() {
		if r.GetType() == v1.RecordType_RECORD_TYPE_ADMIN {
			if strings.HasSuffix(r.GetActor(), " for alice@example.com") {
				named++
			}
			said = append(said, r.GetActor()+": "+r.GetDetail())
		}
	}
	all := strings.Join(said, "\n")
	if strings.Contains(all, "forged") || named != 2 {
		t.Errorf("the records of orders:\n%s", all)
	}
}
