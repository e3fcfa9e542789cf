package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

const twoHosts = `
defaults: {type: rack.64x, zone: z1, resources: {cpu: "64"}}
hosts:
- {name: a, rack: r1}
- {name: b, provider_id: "aws:///z1/i-0123"}
`

// books is a Fleet of machines that a test sets.
type books map[string]provider.Machine

func (b books) StoreID() string { return "store" }
func (b books) Machines() iter.Seq[provider.Machine] {
	return func(yield func(provider.Machine) bool) {
		for _, m := range b {
			if !yield(m) {
				return
			}
		}
	}
}
func (b books) Machine(id string) (provider.Machine, bool) { m, ok := b[id]; return m, ok }

func start(t *testing.T, c Config, list string) *backend {
	t.Helper()
	c.Name, c.Inventory, c.Log = "hosts", filepath.Join(t.TempDir(), "inventory.yaml"), slog.New(slog.DiscardHandler)
	if c.AgentAddr == "" {
		c.AgentAddr = "127.0.0.1:0"
	}
	if err := os.WriteFile(c.Inventory, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := newBackend(c)
	if err != nil {
		t.Fatal(err)
	}
	b.Attach(books{})
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); _ = b.Close() })
	return b
}

func report(t *testing.T, b *backend, r *pb.ReportHostRequest) (*pb.ReportHostResponse, error) {
	t.Helper()
	answer, err := bigfleetv1alpha1connect.NewHostAgentClient(http.DefaultClient, "http://"+b.agents.String()).ReportHost(t.Context(), connect.NewRequest(r))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

func described(t *testing.T, b *backend) (refs []string) {
	t.Helper()
	if err := b.Describe(t.Context(), func(h provider.Host) error { refs = append(refs, h.Ref); return nil }); err != nil {
		t.Fatal(err)
	}
	return refs
}

// PROV-32.4, 32.7: a host is offered once its agent says that it is clean, and as long as it reports; a bound machine is shown
// whatever its agent says.
func TestWhichHostsAreOffered(t *testing.T) {
	b := start(t, Config{Silence: time.Hour}, twoHosts)
	if got := described(t, b); got != nil {
		t.Errorf("before any report: %v", got)
	}
	for _, c := range []struct {
		phase pb.HostPhase
		want  bool
	}{
		{pb.HostPhase_HOST_PHASE_QUARANTINED, false}, {pb.HostPhase_HOST_PHASE_RESETTING, false}, {pb.HostPhase_HOST_PHASE_CONFIGURING, false},
		{pb.HostPhase_HOST_PHASE_CLEAN, true},
	} {
		if _, err := report(t, b, &pb.ReportHostRequest{Host: "a", Phase: c.phase}); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(described(t, b), "hosts://hosts/a"); got != c.want {
			t.Errorf("%v: offered %v", c.phase, got)
		}
	}
	b.config.Silence = time.Nanosecond
	if got := described(t, b); got != nil {
		t.Errorf("silent: %v", got)
	}
	b.Attach(books{"m": {ID: "m", State: lifecycle.Configured, HostRef: "aws:///z1/i-0123", Cluster: "red"}})
	if got := described(t, b); !slices.Equal(got, []string{"aws:///z1/i-0123"}) {
		t.Errorf("a bound machine with a silent agent: %v", got)
	}
}

// PROV-32.7: after a restart of the provider an idle machine is not lost before its agent had time to call.
func TestAgentsMayCallLater(t *testing.T) {
	b := start(t, Config{Silence: time.Hour}, twoHosts)
	b.Attach(books{"m": {ID: "m", State: lifecycle.Idle, HostRef: "hosts://hosts/a"}})
	if got := described(t, b); !slices.Equal(got, []string{"hosts://hosts/a"}) {
		t.Errorf("just after the start: %v", got)
	}
	b.started = time.Now().Add(-2 * time.Hour)
	if got := described(t, b); got != nil {
		t.Errorf("long after it: %v", got)
	}
}

// PROV-32.4: an idle machine whose host says that it is not clean is not shown, so that nothing binds it.
func TestIdleMachineThatIsNotClean(t *testing.T) {
	b := start(t, Config{}, twoHosts)
	b.Attach(books{"m": {ID: "m", State: lifecycle.Idle, HostRef: "hosts://hosts/a"}})
	if _, err := report(t, b, &pb.ReportHostRequest{Host: "a", Phase: pb.HostPhase_HOST_PHASE_CONFIGURED, ClusterId: "red"}); err != nil {
		t.Fatal(err)
	}
	if got := described(t, b); got != nil {
		t.Errorf("%v", got)
	}
}

// A task is taken once, its end is heard, and one that no call waits for any more is not given out.
func TestTask(t *testing.T) {
	b := start(t, Config{}, twoHosts)
	done := make(chan error, 1)
	m := provider.Machine{ID: "m", HostRef: "hosts://hosts/a"}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- b.Configure(ctx, provider.ConfigureOp{ID: "op-1", Machine: m, Cluster: "red", Blob: []byte("secret")})
	}()
	clean := &pb.ReportHostRequest{Host: "a", Phase: pb.HostPhase_HOST_PHASE_CLEAN, WaitMillis: 30_000}
	answer, err := report(t, b, clean)
	if err != nil || answer.GetConfigure().GetOperationId() != "op-1" || answer.GetConfigure().GetClusterId() != "red" || string(answer.GetConfigure().GetBootData()) != "secret" {
		t.Fatalf("%v, %v", answer, err)
	}
	if answer, err = report(t, b, &pb.ReportHostRequest{Host: "a", Phase: pb.HostPhase_HOST_PHASE_CONFIGURED, OperationId: "op-1", ClusterId: "red"}); err != nil || answer.GetTask() != nil {
		t.Fatalf("the task is given again: %v, %v", answer, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	go func() { done <- b.Drain(ctx, provider.DrainOp{ID: "op-2", Machine: m, Cluster: "red"}) }()
	if answer, err = report(t, b, &pb.ReportHostRequest{Host: "a", Phase: pb.HostPhase_HOST_PHASE_CONFIGURED, OperationId: "op-1", WaitMillis: 30_000}); err != nil || answer.GetReset_().GetOperationId() != "op-2" {
		t.Fatalf("%v, %v", answer, err)
	}
	if _, err := report(t, b, &pb.ReportHostRequest{Host: "a", Phase: pb.HostPhase_HOST_PHASE_QUARANTINED, OperationId: "op-2", Problem: "reset, step files: a volume hangs",
		Remains: []string{"mount /var/lib/kubelet/pods/x"}}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "a volume hangs") || !strings.Contains(err.Error(), "mount /var/lib/kubelet/pods/x") {
		t.Errorf("%v", err)
	}
	if class, _ := provider.ClassOf(err); class == provider.ClassTransient {
		t.Error("a quarantine is tried again by itself")
	}
	go func() { done <- b.Drain(ctx, provider.DrainOp{ID: "op-3", Machine: m, Cluster: "red"}) }()
	time.Sleep(50 * time.Millisecond)
	cancel()
	if err := <-done; err == nil {
		t.Error("a call that was cut off succeeded")
	}
	clean.WaitMillis = 0
	if answer, err := report(t, b, clean); err == nil && answer.GetTask() != nil {
		t.Errorf("a task that no call waits for is given out: %v", answer)
	}
}

// PROV-32.2: an agent is heard for the host of its certificate alone; other identities and none are refused, and without TLS only
// loopback is served.
func TestWhoMayReport(t *testing.T) {
	dir := t.TempDir()
	ca, err := devca.New("test")
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.Write(dir, "provider", devca.Request{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, Config{TLS: own}, twoHosts)
	call := func(id identity.ID) error {
		files, err := ca.Write(dir, "caller", devca.For(id))
		if err != nil {
			t.Fatal(err)
		}
		source, err := identity.Load(files, identity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DialTLSContext: source.Dialer(nil, nil, "http/1.1")}
		defer transport.CloseIdleConnections()
		_, err = bigfleetv1alpha1connect.NewHostAgentClient(&http.Client{Transport: transport}, "https://"+b.agents.String()).ReportHost(t.Context(),
			connect.NewRequest(&pb.ReportHostRequest{Host: "a", Phase: pb.HostPhase_HOST_PHASE_CLEAN}))
		return err
	}
	if err := call(identity.ID{Kind: identity.Host, Name: "a"}); err != nil {
		t.Error(err)
	}
	for _, id := range []identity.ID{
		{Kind: identity.Host, Name: "b"}, {Kind: identity.Admin}, {Kind: identity.ReadOnly}, {Kind: identity.Shard, Name: "s"}, {Kind: identity.Cluster, Name: "a"},
		{Kind: identity.Coordinator, Name: "a"},
	} {
		if err := call(id); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: %v", id, err)
		}
	}
	file := filepath.Join(dir, "inventory.yaml")
	if err := os.WriteFile(file, []byte(twoHosts), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newBackend(Config{Name: "hosts", Inventory: file, AgentAddr: "0.0.0.0:0", Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "needs TLS") {
		t.Errorf("plaintext beyond loopback: %v", err)
	}
}

// A report of a host that the inventory does not have, and one that breaks a rule, are refused with the reason.
func TestBadReports(t *testing.T) {
	b := start(t, Config{}, twoHosts)
	if _, err := report(t, b, &pb.ReportHostRequest{Host: "c", Phase: pb.HostPhase_HOST_PHASE_CLEAN}); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "inventory") {
		t.Errorf("%v", err)
	}
	for _, r := range []*pb.ReportHostRequest{
		{}, {Host: "a"}, {Host: "a", Phase: 99}, {Host: "a", Phase: 1, Problem: strings.Repeat("x", 2049)}, {Host: "a", Phase: 1, Remains: make([]string, 33)},
		{Host: "a", Phase: 1, WaitMillis: 60_001},
	} {
		if _, err := report(t, b, r); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%.60v: %v", r, err)
		}
	}
}

// PROV-32.1: everything that is wrong with an inventory is named at once, and a bad one leaves the last good one in force.
func TestInventory(t *testing.T) {
	_, err := parseInventory([]byte(`
hosts:
- {name: A, type: t, zone: z, resources: {cpu: "1"}}
- {name: a, zone: z, resources: {cpu: "1"}}
- {name: b, type: t, zone: z, capacity_type: spot}
- {name: b, type: t, zone: z, resources: {cpu: "1"}, provider_id: nonsense, power: {wake_on_lan: x, redfish: "ftp://x"}}
`), "hosts")
	for _, want := range []string{`"A"`, "type and zone", `"spot"`, "resources are required", `"b" is listed twice`, "nonsense", "give one of", "not a hardware address", "not the URL"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	b := start(t, Config{}, twoHosts)
	if h := b.inventory.named("a"); h.attributes().Labels["topology.bigfleet/rack"] != "r1" || h.attributes().CapacityType != provider.BareMetal {
		t.Errorf("%+v", h)
	}
	later := time.Now().Add(time.Minute)
	for text, good := range map[string]bool{"hosts: [": false, "hosts: []\nunknown: 1\n": false} {
		if err := errors.Join(os.WriteFile(b.config.Inventory, []byte(text), 0o600), os.Chtimes(b.config.Inventory, later, later)); err != nil {
			t.Fatal(err)
		}
		later = later.Add(time.Minute)
		if _, err := b.inventory.load(); (err == nil) != good || len(b.inventory.all()) != 2 {
			t.Errorf("%q: %v, %d hosts", text, err, len(b.inventory.all()))
		}
	}
}

// PROV-32.10: Redfish is asked for the state first and switched on only when it is off; a refused password is class Credentials.
func TestRedfish(t *testing.T) {
	state, posts := "Off", []string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			posts = append(posts, r.URL.Path+" "+string(body))
			state = "On"
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"PowerState": state})
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := redfish{url: s.URL + "/redfish/v1/Systems/1", user: "u", file: file, client: s.Client()}
	for range 2 {
		if err := one.on(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(posts, []string{`/redfish/v1/Systems/1/Actions/ComputerSystem.Reset {"ResetType":"On"}`}) {
		t.Errorf("%v", posts)
	}
	if err := os.WriteFile(file, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := one.on(t.Context())
	if class, _ := provider.ClassOf(err); class != provider.ClassCredentials || strings.Contains(err.Error(), "wrong") {
		t.Errorf("%v", err)
	}
}

// PROV-32.10: the packet that wakes a network card.
func TestWakeOnLAN(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := (wakeOnLAN{"52:54:00:12:34:56", l.LocalAddr().String()}).on(t.Context()); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 200)
	n, _, err := l.ReadFrom(packet)
	if err != nil || n != 102 || packet[5] != 0xff || !slices.Equal(packet[6:12], packet[96:102]) || packet[6] != 0x52 {
		t.Errorf("%v, %d bytes, %x", err, n, packet[:n])
	}
}

// PROV-32.10: a program of the configuration switches a host on that is off, with what the inventory says; the inventory chooses no program.
func TestPowerProgram(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	script := "#!/bin/sh\necho \"$@\" >> " + dir + "/calls\nfor last; do :; done\ncase $last in\nstatus) echo \"Chassis Power is $(cat " + state + ")\" ;;\non) echo on > " + state + " ;;\nesac\n"
	for name, text := range map[string]string{"ipmi": script, "bmc-7": "secret", "state": "off\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b := &backend{config: Config{Secrets: dir, PowerPrograms: map[string][]string{"ipmi": {filepath.Join(dir, "ipmi"), "-H", "{address}", "-U", "{user}", "-f", "{password_file}", "power"}}}}
	one := b.power(&Entry{Power: Power{Program: "ipmi", Address: "bmc 7", User: "u", Password: "bmc-7"}})
	for range 2 {
		if err := one.on(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	given := "-H bmc 7 -U u -f " + dir + "/bmc-7 power "
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || string(calls) != given+"status\n"+given+"on\n"+given+"status\n" {
		t.Errorf("%v\n%s", err, calls)
	}
	if err := os.WriteFile(filepath.Join(dir, "ipmi"), []byte("#!/bin/sh\necho Unable to establish LAN session\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := one.on(t.Context())
	if class, _ := provider.ClassOf(err); class != provider.ClassTransient || !strings.Contains(err.Error(), "Unable to establish") {
		t.Errorf("%v", err)
	}
	if err := b.power(&Entry{Power: Power{Program: "other"}}).ready(); err == nil || !strings.Contains(err.Error(), "power_programs[other]") {
		t.Errorf("a program that the configuration does not have: %v", err)
	}
	for _, bad := range []Power{{Program: "ipmi", Address: "-x"}, {Program: "ipmi", User: "-o"}, {Program: "ipmi", Redfish: "http://bmc"}} {
		if bad.check() == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
	if err := (&settings{Silence: time.Minute, PowerPrograms: map[string][]string{"any": {"{address}"}}}).Validate(); err == nil {
		t.Error("the inventory may choose the program")
	}
}
