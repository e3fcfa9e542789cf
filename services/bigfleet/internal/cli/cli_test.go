package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// now is when every test happens.
var now = time.Unix(1_800_000_000, 0)

// shard answers with fixed records over real HTTP/2; what it does not implement answers UNIMPLEMENTED.
type shard struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
	bigfleetv1alpha1connect.UnimplementedShardAdminHandler
	paused *bigfleetv1alpha1.PauseActuationRequest
	plan   *bigfleetv1alpha1.PlanRequest
}

func (s *shard) ListMachines(_ context.Context, r *connect.Request[bigfleetv1alpha1.ListMachinesRequest]) (*connect.Response[bigfleetv1alpha1.ListMachinesResponse], error) {
	page := &bigfleetv1alpha1.ListMachinesResponse{}
	id := "m-1"
	if r.Msg.GetPageToken() == "" {
		page.NextPageToken = "2"
	} else {
		id = "m-2"
	}
	page.Machines = []*bigfleetv1alpha1.MachineView{{
		Machine: &bigfleetv1alpha1.Machine{
			Id: id, State: bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED, Cluster: "red", InstanceType: "m6i.large", Zone: "eu-1a",
			CapacityType: bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT, PricePerHour: 0.1,
		},
		StateSinceUnixNanos: now.Add(-90 * time.Second).UnixNano(), NodeName: "node-" + id,
	}}
	return connect.NewResponse(page), nil
}

func (s *shard) Explain(_ context.Context, r *connect.Request[bigfleetv1alpha1.ExplainRequest]) (*connect.Response[bigfleetv1alpha1.ExplainResponse], error) {
	if r.Msg.GetMachineId() != "m-1" {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such machine"))
	}
	return connect.NewResponse(&bigfleetv1alpha1.ExplainResponse{Verdict: "m-1 serves red/web.", Cycle: 7, CycleAtUnixNanos: now.UnixNano()}), nil
}

func (s *shard) ListClusters(context.Context, *connect.Request[bigfleetv1alpha1.ListClustersRequest]) (*connect.Response[bigfleetv1alpha1.ListClustersResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.ListClustersResponse{Clusters: []*bigfleetv1alpha1.ClusterView{{ClusterId: "red"}}}), nil
}

func (s *shard) PauseActuation(_ context.Context, r *connect.Request[bigfleetv1alpha1.PauseActuationRequest]) (*connect.Response[bigfleetv1alpha1.PauseActuationResponse], error) {
	s.paused = r.Msg
	return connect.NewResponse(&bigfleetv1alpha1.PauseActuationResponse{Pause: &bigfleetv1alpha1.Pause{PauseId: "p-1", Reason: r.Msg.GetReason()}}), nil
}

func (s *shard) Plan(_ context.Context, r *connect.Request[bigfleetv1alpha1.PlanRequest]) (*connect.Response[bigfleetv1alpha1.PlanResponse], error) {
	s.plan = r.Msg
	buy := &bigfleetv1alpha1.DecisionRecord{Kind: bigfleetv1alpha1.ActionKind_ACTION_KIND_PROVISION, MachineId: "m-9", ClusterId: "red", Cause: "phase1.speculative"}
	old := &bigfleetv1alpha1.DecisionRecord{Kind: bigfleetv1alpha1.ActionKind_ACTION_KIND_DELETE, MachineId: "m-3", Cause: "phase3.release"}
	return connect.NewResponse(&bigfleetv1alpha1.PlanResponse{
		BaseCycle: 7, Actions: []*bigfleetv1alpha1.DecisionRecord{buy}, BaselineActions: []*bigfleetv1alpha1.DecisionRecord{old},
		CostPerHourBefore: 1, CostPerHourAfter: 2,
	}), nil
}

// run makes one command line against a shard and returns what it printed.
func run(t *testing.T, s *shard, input string, args ...string) (stdout, stderr string, code exit.Code) {
	t.Helper()
	return runAt(t, serve(t, s, s), input, args...)
}

// serve lets a shard answer until the test ends, and returns its address.
func serve(t testing.TB, read bigfleetv1alpha1connect.ShardReadHandler, admin bigfleetv1alpha1connect.ShardAdminHandler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewShardReadHandler(read))
	mux.Handle(bigfleetv1alpha1connect.NewShardAdminHandler(admin))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func runAt(t *testing.T, address, input string, args ...string) (stdout, stderr string, code exit.Code) {
	t.Helper()
	var out, err bytes.Buffer
	e := env.Env{In: strings.NewReader(input), Out: &out, Err: &err, Getenv: func(string) string { return "" }, Now: func() time.Time { return now }, Asks: input != ""}
	if !strings.Contains(strings.Join(args, " "), "--all") {
		args = append(args, "--shard", address)
	}
	code = cli.Main(t.Context(), e, args)
	return out.String(), err.String(), code
}

// OPS-4.2: a table for people, pages followed to the end; wide adds columns; data formats are whole messages.
func TestGetMachines(t *testing.T) {
	out, _, code := run(t, &shard{}, "", "get", "machines")
	want := "NAME  STATE       CLUSTER  TYPE       ZONE   CAPACITY  PRICE    SINCE\n" +
		"m-1   configured  red      m6i.large  eu-1a  spot      $0.10/h  1m30s\n" +
		"m-2   configured  red      m6i.large  eu-1a  spot      $0.10/h  1m30s\n"
	if out != want || code != exit.OK {
		t.Errorf("code %d, table\n%s\nwant\n%s", code, out, want)
	}
	if out, _, _ := run(t, &shard{}, "", "get", "machines", "m-2", "-o", "wide"); !strings.Contains(out, "node-m-2") || strings.Contains(out, "m-1 ") {
		t.Errorf("wide table of one machine:\n%s", out)
	}
	out, _, _ = run(t, &shard{}, "", "get", "machines", "-o", "json")
	var list struct {
		Items []struct{ Machine struct{ ID string } }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != 2 || list.Items[1].Machine.ID != "m-2" {
		t.Errorf("json: %v\n%s", err, out)
	}
	if out, _, _ := run(t, &shard{}, "", "get", "machines", "-o", "jsonl"); strings.Count(out, "\n") != 2 {
		t.Errorf("jsonl is not one object a line:\n%s", out)
	}
	if out, _, _ := run(t, &shard{}, "", "get", "machines", "-o", "name"); out != "machine/m-1\nmachine/m-2\n" {
		t.Errorf("names: %q", out)
	}
}

// progress is what a command says on stderr that is taking a whileer than a second.
var progress = regexp.MustCompile(`(?m)^.* is taking a while: still waiting for .*\n`)

// OPS-4.10: every way to fail has its code and one line that says what to do.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code exit.Code
		says string
	}{
		{[]string{"get", "machines", "m-7"}, exit.NotFound, "there is no machine m-7. `bigfleet get machines` lists them"},
		{[]string{"get", "dragons"}, exit.Usage, `unknown kind "dragons"`},
		{[]string{"get", "machines", "--state", "molten"}, exit.Usage, "--state molten is unknown: use one of configured"},
		{[]string{"get", "machines", "-o", "xml"}, exit.Usage, "-o xml is not a format"},
		{[]string{"stats"}, exit.Usage, "Did you mean `bigfleet status`?"},
		{[]string{"halt"}, exit.Usage, "Did you mean `bigfleet pause`?"},
		{[]string{"start"}, exit.Usage, "Did you mean `bigfleet resume`?"},
		{[]string{"changes"}, exit.Usage, "Did you mean `bigfleet history --since 10m`?"},
		{[]string{"provider", "certify"}, exit.Usage, "Did you mean `bigfleet provider conformance`?"},
		{[]string{"machines", "drian"}, exit.Usage, "Did you mean `bigfleet machines drain`?"},
		{[]string{"get", "idle"}, exit.Usage, "`bigfleet get machines --state idle` lists those"},
		{[]string{"explain", "web-1"}, exit.Usage, `"web-1" has no kind: write pod/web-1`},
		{[]string{"explain", "pod/"}, exit.Usage, "the name of the pod is missing: write pod/NAME"},
		{[]string{"explain", "provider/demo"}, exit.Usage, "`bigfleet describe provider/demo` shows it"},
		{[]string{"plan", "--zone-out", "a"}, exit.Usage, "unknown flag: --zone-out. Did you mean --drain-zone?"},
		{[]string{"cost", "--team", "web"}, exit.Usage, "`bigfleet get needs --team NAME -o wide` shows what each need of a team costs"},
		{[]string{"cost", "--from", "14:00"}, exit.Usage, "name the --data-dir of a shard with --record"},
		{[]string{"wait", "--for", "met", "deployment/web"}, exit.Usage, "`bigfleet explain deployment/web` names the need"},
		{[]string{"get", "machines", "--frobnicate"}, exit.Usage, "unknown flag: --frobnicate"},
		{[]string{"explain", "machine/m-7"}, exit.NotFound, "no shard knows machine/m-7"},
		{[]string{"status"}, exit.Failed, "GetStatus is not implemented"},
		{[]string{"plan", "--stock-out", "m6i.large", "--fail-on", "provision"}, exit.Problems, "the plan contains 1 provision"},
		{[]string{"pause", "--all", "--shard", "x", "--reason", "r"}, exit.Usage, "name the shards"},
	} {
		_, stderr, code := run(t, &shard{}, "", c.args...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit %d, %q; want %d with %q", c.args, code, stderr, c.code, c.says)
		}
		stderr = progress.ReplaceAllString(stderr, "") // a slow machine's, and no error
		if n := strings.Count(strings.TrimSpace(stderr), "\n"); n != 0 {
			t.Errorf("%v: the error has %d lines, want 1:\n%s", c.args, n+1, stderr)
		}
	}
	_, stderr, code := runAt(t, "127.0.0.1:1", "", "get", "machines")
	if code != exit.Unreachable || !strings.Contains(stderr, "nothing answers at 127.0.0.1:1") {
		t.Errorf("no server: exit %d, %q", code, stderr)
	}
	_, stderr, _ = runAt(t, "127.0.0.1:1", "", "get", "machines", "-o", "json")
	var object struct{ Code int }
	if err := json.Unmarshal([]byte(stderr), &object); err != nil || object.Code != 5 {
		t.Errorf("errors as objects: %v, %q", err, stderr)
	}
}

// OPS-4.9, PROV-20.2: what is wrong with a provider's configuration is on the one line, each fault with its line or its offering.
func TestRoleNamesEveryFault(t *testing.T) {
	for text, want := range map[string][]string{
		"oferings: []\nseed_cuont: 3\n": {"line 1: oferings is not a key", "line 2: seed_cuont is not a key"},
		"offerings:\n- {instance_type: x, zone: a, capacity_type: spot, count: 1, resources: {cpu: \"1\"}}\n" +
			"- {instance_type: y, zone: a, capacity_type: spot, count: 1, resources: {cpu: \"1\"}}\n": {`"x-a-spot": price_per_hour is missing`, `"y-a-spot": price_per_hour is missing`},
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, say bytes.Buffer
		e := env.Env{In: strings.NewReader(""), Out: &out, Err: &say, Getenv: func(string) string { return "" }, Now: func() time.Time { return now }}
		code := cli.Main(t.Context(), e, []string{"provider", "sim", "--config", file, "--state", "memory"})
		for _, w := range want {
			if code != exit.Usage || !strings.Contains(say.String(), w) || strings.Count(say.String(), "\n") != 1 {
				t.Errorf("exit %d, %q; want %q on one line", code, say.String(), w)
			}
		}
	}
}

// OPS-4.8: an order says what it does and asks; without a terminal and without --yes it refuses; --dry-run reaches the server.
func TestOrdersAsk(t *testing.T) {
	s := &shard{}
	args := []string{"pause", "--kind", "reclaim", "--cluster", "red", "--reason", "test", "--for", "2h"}
	if _, _, code := run(t, s, "", args...); code != exit.Declined || s.paused != nil {
		t.Errorf("no terminal to ask at: exit %d, paused %v", code, s.paused)
	}
	if _, _, code := run(t, s, "n\n", args...); code != exit.Declined || s.paused != nil {
		t.Errorf("the user said no: exit %d, paused %v", code, s.paused)
	}
	out, stderr, code := run(t, s, "y\n", args...)
	if code != exit.OK || s.paused.GetTtlSeconds() != 7200 || s.paused.GetClusterId() != "red" || len(s.paused.GetKinds()) != 1 {
		t.Errorf("exit %d, sent %v", code, s.paused)
	}
	if !strings.Contains(stderr, "Pauses reclaim for cluster red on 1 shard.") || !strings.Contains(out, "p-1") {
		t.Errorf("said %q, printed %q", stderr, out)
	}
	if _, _, code := run(t, s, "", append(args, "--dry-run")...); code != exit.OK || !s.paused.GetValidateOnly() {
		t.Errorf("dry run: exit %d, sent %v", code, s.paused)
	}
	if _, stderr, code := run(t, s, "", "pause", "--yes"); code != exit.Usage || !strings.Contains(stderr, "reason") {
		t.Errorf("no reason: exit %d, %q", code, stderr)
	}
}

// unsure cannot list its clusters.
type unsure struct{ *shard }

func (unsure) ListClusters(context.Context, *connect.Request[bigfleetv1alpha1.ListClustersRequest]) (*connect.Response[bigfleetv1alpha1.ListClustersResponse], error) {
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("it is starting"))
}

// OPS-4.8: a pause refuses a cluster that no shard has. It goes out while a shard cannot tell, because a pause is for emergencies.
func TestPauseRefusesUnknownClusters(t *testing.T) {
	s := &shard{}
	if _, stderr, code := run(t, s, "", "pause", "--cluster", "rad", "--reason", "test", "--yes"); code != exit.NotFound || s.paused != nil || !strings.Contains(stderr, "Did you mean red?") {
		t.Errorf("unknown cluster: exit %d, %q, sent %v", code, stderr, s.paused)
	}
	if _, stderr, code := runAt(t, serve(t, unsure{s}, s), "", "pause", "--cluster", "rad", "--reason", "test", "--yes"); code != exit.OK || s.paused.GetClusterId() != "rad" {
		t.Errorf("a shard cannot tell: exit %d, %q, sent %v", code, stderr, s.paused)
	}
}

// OPS-4.16: flags and a file become one request; what the edits add and take away is marked.
func TestPlan(t *testing.T) {
	s := &shard{}
	out, _, code := run(t, s, "liftHolds: true\n", "plan", "-f", "-", "--add-demand", "red:cpu=4,memory=8Gi,priority=100", "--price", "m6i.large@eu-1a=2", "--drop-cluster", "blue")
	if code != exit.OK {
		t.Fatalf("exit %d", code)
	}
	need := s.plan.GetDemand()[0].GetAdd()
	if !s.plan.GetLiftHolds() || need.GetPriority() != 100 || need.GetAggregateResources()["memory"] != "8Gi" || !s.plan.GetDemand()[1].GetDrop() {
		t.Errorf("request: %v", s.plan)
	}
	if p := s.plan.GetMachines()[0].GetPrice(); p.GetInstanceType() != "m6i.large" || p.GetZone() != "eu-1a" || p.GetFactor() != 2 {
		t.Errorf("price edit: %v", p)
	}
	for _, want := range []string{"+ provision  m-9  cluster red  It would be bought for cluster red.", "- delete     m-3  It was idle for longer than its hold time, so it is returned to its provider.", "$1.00/h -> $2.00/h"} {
		if !strings.Contains(out, want) {
			t.Errorf("plan lacks %q:\n%s", want, out)
		}
	}
	if _, stderr, code := run(t, s, "liftHold: true\n", "plan", "-f", "-"); code != exit.Usage || !strings.Contains(stderr, "liftHold") {
		t.Errorf("a misspelt field: exit %d, %q", code, stderr)
	}
}

// OPS-4.12: every verb has an example, and every example is a command line that parses.
func TestExamplesParse(t *testing.T) {
	var visit func(path string, c *cobra.Command)
	visit = func(path string, c *cobra.Command) {
		path = strings.TrimSpace(path + " " + c.Name())
		for _, child := range c.Commands() {
			visit(path, child)
		}
		if c.HasSubCommands() || c.Hidden || c.Name() == "help" || strings.Contains(path, "completion") {
			return
		}
		if c.Example == "" {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.Lines(c.Example) {
			words, rest := strings.Fields(strings.ReplaceAll(line, "'", "")), strings.Fields(path)
			if len(words) < len(rest) || strings.Join(words[:len(rest)], " ") != path {
				t.Errorf("%s: the example %q is not about it", path, line)
				continue
			}
			if err := c.ParseFlags(words[len(rest):]); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	visit("", cli.New(app.New(env.System())))
}
