package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/console/web"
)

// OPS-6.2: what is not a read is refused when asked for directly: every RPC of every service that our processes serve.
func TestReadsOnly(t *testing.T) {
	base, _, _ := serveConsole(t, &shardStub{name: "red"})
	files := []protoreflect.FileDescriptor{pb.File_bigfleet_v1alpha1_coordinator_proto, pb.File_bigfleet_v1alpha1_coordinatoradmin_proto, pb.File_bigfleet_v1alpha1_shardread_proto,
		pb.File_bigfleet_v1alpha1_shardadmin_proto, pb.File_bigfleet_v1alpha1_shard_proto, pb.File_bigfleet_v1alpha1_provider_proto, pb.File_bigfleet_v1alpha1_provideradmin_proto, pb.File_bigfleet_v1alpha1_substratecontrol_proto}
	mutations := 0
	for _, f := range files {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				options, _ := m.Options().(*descriptorpb.MethodOptions)
				if options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS || m.IsStreamingServer() {
					continue
				}
				mutations++
				status, body := post(t, base+"/"+string(m.Parent().FullName())+"/"+string(m.Name()), "{}", "bigfleet-target", "s0")
				if status/100 == 2 || !strings.Contains(body, "permission_denied") && !strings.Contains(body, "unimplemented") {
					t.Errorf("%s: status %d, %s", m.FullName(), status, body)
				}
			}
		}
	}
	if mutations < 40 {
		t.Errorf("only %d mutations were tried", mutations)
	}
	if status, body := post(t, base+"/bigfleet.v1alpha1.ShardRead/GetStatus", "{}"); status != http.StatusOK || !strings.Contains(body, `"shardId":"s0"`) {
		t.Errorf("a read: status %d, %s", status, body)
	}
	if status, body := post(t, base+"/bigfleet.v1alpha1.ShardRead/GetStatus", "{}", "bigfleet-target", "<b>x"); status != http.StatusNotFound || !strings.Contains(body, "not_found") {
		t.Errorf("a shard that is not: status %d, %s", status, body)
	}
	if status, body := post(t, base+"/bigfleet.v1alpha1.CoordinatorAdmin/GetFleetStatus", "{}"); !strings.Contains(body, "--coordinator") {
		t.Errorf("without a coordinator: status %d, %s", status, body)
	}
}

// OPS-6.1: a page of another site gets nothing, whatever it sends; neither does one that resolved its own name to this host.
func TestOtherSites(t *testing.T) {
	base, _, _ := serveConsole(t, &shardStub{name: "red"})
	read := base + "/bigfleet.v1alpha1.ShardRead/GetStatus"
	for name, headers := range map[string][]string{
		"another origin":       {"Origin", "https://evil.example"},
		"another port":         {"Origin", "http://127.0.0.1:1"},
		"no origin to speak":   {"Origin", "null"},
		"cross-site":           {"Sec-Fetch-Site", "cross-site"},
		"another subdomain":    {"Sec-Fetch-Site", "same-site"},
		"a form":               {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
		"DNS rebinding":        {"Host", "evil.example"},
		"rebinding and origin": {"Host", "evil.example", "Origin", "http://evil.example"},
	} {
		if status, body := post(t, read, "{}", headers...); status != http.StatusForbidden && status != http.StatusMisdirectedRequest {
			t.Errorf("%s: status %d, %s", name, status, body)
		}
	}
	for name, headers := range map[string][]string{
		"its own page": {"Origin", base, "Sec-Fetch-Site", "same-origin"},
		"a program":    nil,
	} {
		if status, body := post(t, read, "{}", headers...); status != http.StatusOK {
			t.Errorf("%s: status %d, %s", name, status, body)
		}
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/demand?show=waiting", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Dest", "document")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Body.Close()
	if got.StatusCode != http.StatusOK {
		t.Errorf("a link from a chat: status %d", got.StatusCode)
	}
	for header, want := range map[string]string{"Content-Security-Policy": "default-src 'none'; script-src 'self'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
		if v := got.Header.Get(header); !strings.HasPrefix(v, want) {
			t.Errorf("%s: %q", header, v)
		}
	}
}

// OPS-6.1: --hosts refuses every other name.
func TestHosts(t *testing.T) {
	base, _, _ := serveConsole(t, &shardStub{name: "red"}, func(c *Config) { c.Hosts = []string{"localhost"} })
	if status, _ := post(t, base+"/bigfleet.v1alpha1.ShardRead/GetStatus", "{}"); status != http.StatusMisdirectedRequest {
		t.Errorf("by address: status %d", status)
	}
	if status, _ := post(t, base+"/bigfleet.v1alpha1.ShardRead/GetStatus", "{}", "Host", "LOCALHOST:7700"); status != http.StatusOK {
		t.Errorf("by name: status %d", status)
	}
}

// OPS-6.1: an address that others reach needs TLS or a proxy, and a console without a source has nothing to show.
func TestConfiguration(t *testing.T) {
	for _, x := range []struct {
		c    Config
		want string
	}{
		{Config{Listen: "0.0.0.0:7700", Shards: []string{"a=b:1"}}, "--behind-proxy"},
		{Config{Listen: ":7700", Shards: []string{"a=b:1"}}, "--listen-cert"},
		{Config{Listen: "0.0.0.0:7700", BehindProxy: true, Shards: []string{"a=b:1"}}, ""},
		{Config{Listen: "[::1]:7700", Shards: []string{"a=b:1"}}, ""},
		{Config{}, "nothing to show"},
		{Config{Shards: []string{"a"}}, "want id=host:port"},
		{Config{Shards: []string{"a=b:1"}, ListenCert: "x"}, "both or none"},
		{Config{Shards: []string{"a=b:1"}, Viewers: -1}, "--viewers"},
		{Config{Coordinators: []string{"no port"}}, "--coordinator"},
	} {
		err := x.c.check()
		if got := ""; err != nil && x.want == "" || err == nil && x.want != "" || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v, want %q%s", x.c, err, x.want, got)
		}
	}
}

// OPS-6.3: many viewers cost the shard one stream of records, and one reading of the needs for each cycle.
func TestViewersShareOneStream(t *testing.T) {
	shard := &shardStub{name: "red"}
	shard.cycle.Store(1)
	base, _, _ := serveConsole(t, shard)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const viewers = 20
	complete := make(chan int, viewers)
	for range viewers {
		go func() {
			stream, err := consoleClient(base).WatchNeeds(ctx, connect.NewRequest(&pb.WatchNeedsRequest{}))
			if err != nil {
				complete <- -1
				return
			}
			defer func() { _ = stream.Close() }()
			rows := 0
			for stream.Receive() {
				if rows += len(stream.Msg().GetUpserts()); stream.Msg().GetSnapshotComplete() && rows > 0 {
					complete <- rows
					break
				}
			}
			for stream.Receive() { // stays, as a page does
			}
		}()
	}
	for range viewers {
		if n := <-complete; n != 3 {
			t.Errorf("a viewer has %d rows, want 3", n)
		}
	}
	if n := shard.streams.Load(); n != 1 {
		t.Errorf("%d streams of records for %d viewers, want 1", n, viewers)
	}
	if n := shard.inspects.Load(); n != 1 {
		t.Errorf("the needs of one cycle were read %d times, want once", n)
	}
	shard.cycle.Store(2)
	eventually(t, "the next cycle is read", func() bool { return shard.inspects.Load() == 2 })
}

// OPS-6.3: streams are bounded, and the refusal says what to do.
func TestViewersAreBounded(t *testing.T) {
	base, _, _ := serveConsole(t, &shardStub{name: "red"}, func(c *Config) { c.Viewers = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	first, err := consoleClient(base).WatchOverview(ctx, connect.NewRequest(&pb.WatchOverviewRequest{}))
	if err != nil || !first.Receive() {
		t.Fatal(err)
	}
	second := func() error {
		s, err := consoleClient(base).WatchOverview(t.Context(), connect.NewRequest(&pb.WatchOverviewRequest{}))
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		s.Receive()
		return s.Err()
	}
	if err := second(); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "--viewers") {
		t.Errorf("a second viewer: %v", err)
	}
	cancel()
	_ = first.Close()
	eventually(t, "room after the first has left", func() bool { return second() == nil })
}

// OPS-6.5: a shard that goes keeps its last state with its age and the reason, and heals when it is back, without a new stream of the viewer.
func TestShardRestarts(t *testing.T) {
	shard := &shardStub{name: "red"}
	shard.cycle.Store(1)
	base, addr, stop := serveConsole(t, shard)
	stream, err := consoleClient(base).WatchOverview(t.Context(), connect.NewRequest(&pb.WatchOverviewRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	until := func(what string, is func(*pb.WatchOverviewResponse, *pb.SourceStatus) bool) *pb.WatchOverviewResponse {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); stream.Receive() && time.Now().Before(end); {
			for _, s := range stream.Msg().GetSources() {
				if s.GetSource() == "shard/s0" && is(stream.Msg(), s) {
					return stream.Msg()
				}
			}
		}
		t.Fatalf("%s: %v", what, stream.Err())
		return nil
	}
	seen := until("it answers", func(o *pb.WatchOverviewResponse, s *pb.SourceStatus) bool {
		return s.GetError() == "" && len(o.GetWaiting()) == 1
	})
	if seen.GetHeadline() != "1 need waits." || seen.GetUnsatisfiedByReason()["UNMET_REASON_PRIORITY_STARVED"] != 1 || seen.GetCostPerHour() != 2.5 {
		t.Errorf("the overview: %v", seen)
	}
	stop()
	gone := until("it is gone", func(_ *pb.WatchOverviewResponse, s *pb.SourceStatus) bool { return s.GetError() != "" })
	if len(gone.GetShards()) != 1 || !strings.HasPrefix(gone.GetHeadline(), "S0 gives no answer") {
		t.Errorf("while it is gone: %q, %d shards", gone.GetHeadline(), len(gone.GetShards()))
	}
	again := &shardStub{name: "red"}
	again.cycle.Store(1)
	serveShard(t, again, addr)
	until("it is back", func(_ *pb.WatchOverviewResponse, s *pb.SourceStatus) bool { return s.GetError() == "" })
	eventually(t, "its records are followed again", func() bool { return again.streams.Load() == 1 })
}

// OPS-6.5: a search waits a bounded time for a shard that does not answer, names it, and finds what the others have.
func TestSearchBesideAShardThatHangs(t *testing.T) {
	well, _ := serveShard(t, &shardStub{name: "blue"}, "127.0.0.1:0")
	base, _, _ := serveConsole(t, &shardStub{name: "red", hangs: true}, func(c *Config) { c.Shards = append(c.Shards, "s1="+well) })
	eventually(t, "a hit of the other shard", func() bool {
		got, err := consoleClient(base).Search(t.Context(), connect.NewRequest(&pb.SearchRequest{Query: "m-1"}))
		if err != nil {
			t.Fatal(err)
		}
		hits, missing := got.Msg.GetHits(), got.Msg.GetMissing()
		if len(missing) == 1 && !strings.HasPrefix(missing[0], "s0: ") {
			t.Fatalf("missing %v", missing)
		}
		return len(missing) == 1 && len(hits) == 1 && hits[0].GetShardId() == "s1"
	})
}

// OPS-6.10: names are passed as they are, and a record is in the words of the command line.
func TestNamesAndSentences(t *testing.T) {
	hostile := "<img src=x onerror=alert(1)>\u202e\x1b[31m" + strings.Repeat("x", 4096)
	shard := &shardStub{name: hostile}
	shard.cycle.Store(1)
	base, _, _ := serveConsole(t, shard, func(c *Config) {
		c.Sentence = func(r *pb.DecisionRecord) string { return "said: " + r.GetCause() }
	})
	var stream *connect.ServerStreamForClient[pb.WatchMachineResponse]
	eventually(t, "the shard is known", func() bool {
		var err error
		if stream, err = consoleClient(base).WatchMachine(t.Context(), connect.NewRequest(&pb.WatchMachineRequest{MachineId: "gone"})); err != nil {
			t.Fatal(err)
		}
		if stream.Receive() {
			return true
		}
		if code := connect.CodeOf(stream.Err()); code != connect.CodeUnavailable {
			t.Fatalf("before a shard is known: %v", stream.Err())
		}
		_ = stream.Close()
		return false
	})
	if m := stream.Msg(); m.GetMachine() != nil || len(m.GetRecords()) != 1 || m.GetRecords()[0].GetDetail() != "said: phase3.release" {
		t.Errorf("a machine that is gone: %v", m)
	}
	_ = stream.Close()
	var hits []*pb.SearchHit
	eventually(t, "the search finds it", func() bool {
		got, err := consoleClient(base).Search(t.Context(), connect.NewRequest(&pb.SearchRequest{Query: "IMG SRC"}))
		if err != nil {
			t.Fatal(err)
		}
		hits = got.Msg.GetHits()
		return len(hits) > 0
	})
	if hits[0].GetKind() != "cluster" || hits[0].GetName() != hostile {
		t.Errorf("found %v", hits[0])
	}
	for query, want := range map[string]string{"ip-10": "node", "m-1": "machine", "gone": "machine", "s0": "shard"} {
		got, err := consoleClient(base).Search(t.Context(), connect.NewRequest(&pb.SearchRequest{Query: query}))
		if err != nil || len(got.Msg.GetHits()) == 0 || got.Msg.GetHits()[0].GetKind() != want {
			t.Errorf("%s: %v %v, want a %s", query, got, err, want)
		}
	}
	if _, err := consoleClient(base).Search(t.Context(), connect.NewRequest(&pb.SearchRequest{Query: strings.Repeat("x", 300)})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a query of 300 characters: %v", err)
	}
	if _, err := consoleClient(base).GetPodPath(t.Context(), connect.NewRequest(&pb.GetPodPathRequest{ClusterId: "red", Namespace: "a", Pod: "b"})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a Pod without clusters: %v", err)
	}
}

// Costs of the past are the console's notes: a running shard knows present ones only.
func TestPastCosts(t *testing.T) {
	base, _, _ := serveConsole(t, &shardStub{name: "red"})
	client := bigfleetv1alpha1connect.NewShardReadClient(http.DefaultClient, base)
	eventually(t, "a note", func() bool {
		got, err := client.GetCost(t.Context(), connect.NewRequest(&pb.GetCostRequest{GroupBy: []string{"cluster"}, SinceUnixNanos: 1, Points: 10}))
		return err == nil && len(got.Msg.GetPoints()) == 1 && got.Msg.GetPoints()[0].GetRows()[0].GetCostPerHourByState()["MACHINE_STATE_CONFIGURED"] == 2.5
	})
}

// OPS-6.6: the files are at most 500 KB compressed, load nothing from elsewhere and hold no script that the policy would refuse.
func TestFiles(t *testing.T) {
	total := 0
	err := fs.WalkDir(web.Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := fs.ReadFile(web.Files(), name)
		if err != nil {
			return err
		}
		var small bytes.Buffer
		z := gzip.NewWriter(&small)
		_, _ = z.Write(plain)
		_ = z.Close()
		total += small.Len()
		if name == "index.html" && (strings.Contains(string(plain), "<script>") || strings.Contains(string(plain), "://") || strings.Contains(string(plain), "style=")) {
			t.Errorf("index.html holds what the policy refuses: %s", plain)
		}
		if strings.HasSuffix(name, ".js") && (bytes.Contains(plain, []byte("eval(")) || bytes.Contains(plain, []byte("new Function("))) {
			t.Errorf("%s makes code of text", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > 500_000 || total < 20_000 {
		t.Errorf("%d bytes compressed, want at most 500 KB, and an application at all", total)
	}
}

// OPS-6.1: with a certificate for browsers, a caller without a certificate of the fleet reads all the same: TLS encrypts, it names no user.
func TestBrowsersOverTLS(t *testing.T) {
	ca, err := devca.New("web")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(devca.Request{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	base, _, _ := serveConsole(t, &shardStub{name: "red"}, func(c *Config) {
		c.ListenCert, c.ListenKey = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(browser.CloseIdleConnections)
	at := strings.Replace(base, "http:", "https:", 1)
	eventually(t, "a read over TLS", func() bool {
		got, err := bigfleetv1alpha1connect.NewShardReadClient(browser, at).GetStatus(t.Context(), connect.NewRequest(&pb.GetStatusRequest{}))
		if err == nil {
			return got.Msg.GetShardId() == "s0"
		}
		if connect.CodeOf(err) == connect.CodePermissionDenied {
			t.Fatal(err)
		}
		return false
	})
}
