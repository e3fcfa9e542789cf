package aws

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"
)

func newModelOnNetwork(t *testing.T, region string) (*onNetwork, cloud) {
	t.Helper()
	m, err := newModel("", 2*time.Millisecond)
	must(t, err)
	m.region = region
	n := putOnNetwork(t, m)
	return n, n.dialed(region)
}

// PROV-15.6, 19, 28.11: through the client of AWS's own SDK any call may be throttled, find AWS away, or lose its answer whole or in half. It
// is repeated and ends well with one effect. A refusal ends the operation with its class.
func TestFaultsOnNetwork(t *testing.T) {
	n, api := newModelOnNetwork(t, "us-east-1")
	stopped := func(s *settings) { s.Idle = idleStopped }
	must(t, newWorldOver(t, n.m, api, stopped).life())
	names := n.names()
	if len(names) < 10 {
		t.Fatalf("a life makes the calls %v only", names)
	}
	for _, name := range names {
		throttled, refused := "ThrottlingException", `{"__type":"AccessDeniedException","message":"You are not authorized"}`
		throttle := `{"__type":"` + throttled + `","message":"Rate exceeded"}`
		if strings.HasPrefix(name, "ec2.") {
			const form = `<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>r</RequestID></Response>`
			throttle, refused = fmt.Sprintf(form, "RequestLimitExceeded", "Request limit exceeded."), fmt.Sprintf(form, "UnauthorizedOperation", "You are not authorized to perform this operation.")
		}
		for what, fault := range map[string]httpFault{
			"throttled": {status: http.StatusServiceUnavailable, body: throttle}, "too many": {status: http.StatusTooManyRequests},
			"away": {status: http.StatusServiceUnavailable}, "a page of a proxy": {status: http.StatusBadGateway, body: "<html><body>Bad Gateway</body></html>"},
			"answer lost": {cut: true}, "half an answer": {half: true},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				n.m.forget()
				left := 1
				n.setFault(func(called string) *httpFault {
					if called != name || left == 0 {
						return nil
					}
					left--
					return &fault
				})
				must(t, newWorldOver(t, n.m, api, stopped).life())
				if left > 0 {
					t.Fatal("the call was not made")
				}
				live := 0
				for _, i := range n.m.Instances {
					if i.State != "terminated" {
						live++
					}
				}
				if len(n.m.Instances) != 1 || live != 0 {
					t.Errorf("%d instances were launched and %d are left", len(n.m.Instances), live)
				}
			})
		}
		t.Run(name+" refused", func(t *testing.T) {
			n.m.forget()
			n.setFault(func(called string) *httpFault {
				if called == name {
					return &httpFault{status: http.StatusForbidden, body: refused}
				}
				return nil
			})
			err := newWorldOver(t, n.m, api, stopped).life()
			if class, _ := provider.ClassOf(err); class != provider.ClassCredentials || !strings.Contains(err.Error(), "not authorized") {
				t.Errorf("%v is %s", err, class)
			}
		})
	}
}

// PROV-28.11: what a launch sends: the operation as client token, the tags with the instance itself, one machine, and the region in the signature.
func TestLaunchOnNetwork(t *testing.T) {
	n, api := newModelOnNetwork(t, "us-east-1")
	w := newWorldOver(t, n.m, api, func(s *settings) { s.Reservations = map[string]string{"held": "cr-1"} })
	_, err := w.create(large, "op-1")
	must(t, err)
	_, err = w.create(machine("aws-spot-0", "m5.large", "us-east-1b", provider.Spot), "op-2")
	must(t, err)
	reserved := machine("aws-r-0", "m5.large", "us-east-1a", provider.Reserved)
	reserved.Offering = "held"
	_, err = w.create(reserved, "op-3")
	must(t, err)
	sent := append(n.of("ec2.CreateFleet"), n.of("ec2.RunInstances")...)
	if len(sent) != 3 {
		t.Fatalf("%d launches", len(sent))
	}
	for i, want := range []map[string]string{
		{
			"ClientToken": "op-1", "Type": "instant", "TargetCapacitySpecification.TotalTargetCapacity": "1",
			"TargetCapacitySpecification.DefaultTargetCapacityType": "on-demand", "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version": "$Default",
			"LaunchTemplateConfigs.1.Overrides.1.AvailabilityZone": "us-east-1a",
		},
		{"ClientToken": "op-2", "TargetCapacitySpecification.DefaultTargetCapacityType": "spot", "SpotOptions.AllocationStrategy": "price-capacity-optimized"},
		{"ClientToken": "op-3", "MinCount": "1", "MaxCount": "1", "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId": "cr-1"},
	} {
		for key, value := range want {
			if got := sent[i].form.Get(key); got != value {
				t.Errorf("%s of %s is %q, want %q", key, sent[i].name, got, value)
			}
		}
		tags := map[string]string{}
		for _, one := range tagsOf(sent[i].form, "TagSpecification.1.Tag") {
			tags[*one.Key] = *one.Value
		}
		if sent[i].form.Get("TagSpecification.1.ResourceType") != "instance" || tags[tagStore] != "store" || tags[tagOperation] != want["ClientToken"] || tags[tagMachine] == "" {
			t.Errorf("%s tags %v", sent[i].name, tags)
		}
		if sent[i].region != "us-east-1" {
			t.Errorf("%s is signed for %s", sent[i].name, sent[i].region)
		}
	}
}

// PROV-28.1, 28.4: offerings of two regions, asked of AWS. Shapes and list prices are those that are recorded, and each service is asked in the
// region that serves it.
func TestOfferingsOnNetwork(t *testing.T) {
	for region, priced := range map[string]string{"us-east-1": "us-east-1", "us-gov-west-1": "us-east-1"} {
		t.Run(region, func(t *testing.T) {
			n, _ := newModelOnNetwork(t, region)
			ask := func(more ...string) (sections struct{ Offerings []section }) {
				cmd := NewCommand()
				var out bytes.Buffer
				cmd.SetOut(&out)
				cmd.SetArgs(append([]string{"offerings", "--region", region, "--zones", region + "a," + region + "b", "--types", "m5.large,c6g.large,g4dn.8xlarge"}, more...))
				must(t, cmd.ExecuteContext(t.Context()))
				must(t, yaml.Unmarshal(out.Bytes(), &sections))
				return sections
			}
			live, known := ask().Offerings, ask("--offline").Offerings
			if len(live) != len(known) || len(live) != 10 {
				t.Fatalf("%d offerings asked, %d recorded", len(live), len(known))
			}
			for i := range live {
				if live[i].CapacityType == "spot" {
					if want := known[i].Price * modelDiscount; live[i].Price < want-1e-6 || live[i].Price > want+1e-6 {
						t.Errorf("%s costs %v on the market, want %v", live[i].Name, live[i].Price, want)
					}
					live[i].Price = known[i].Price
				}
				if a, b := fmt.Sprint(live[i]), fmt.Sprint(known[i]); a != b {
					t.Errorf("asked:\n%s\nrecorded:\n%s", a, b)
				}
			}
			for name, want := range map[string]string{"ec2.DescribeInstanceTypes": region, "ec2.DescribeSpotPriceHistory": region, "pricing.GetProducts": priced} {
				for _, c := range n.of(name) {
					if c.region != want {
						t.Errorf("%s is asked in %s, want %s", name, c.region, want)
					}
				}
				if len(n.of(name)) == 0 {
					t.Errorf("%s was not asked", name)
				}
			}
		})
	}
}

// PROV-28.4, 28.6: prices, commitments, checks and notices through the client of AWS's own SDK.
func TestQuotesOnNetwork(t *testing.T) {
	n, api := newModelOnNetwork(t, "us-east-1")
	w := newWorldOver(t, n.m, api, func(s *settings) { s.QueueURL, s.Reservations = n.url+"/queue", map[string]string{"held": "cr-1"} },
		offer("list", "m5.large", "us-east-1a", provider.OnDemand, 1), offer("spot", "m5.large", "us-east-1b", provider.Spot, 1),
		offer("held", "m5.large", "us-east-1a", provider.Reserved, 1), offer("planned", "m5.xlarge", "us-east-1a", provider.Reserved, 1))
	warnings, err := w.b.Check(t.Context(), w.b.Offerings)
	if err != nil || len(warnings) > 0 {
		t.Errorf("check: %v, %v", warnings, err)
	}
	got, err := w.prices()
	must(t, err)
	for key, want := range map[string]float64{"list": 0.096, "spot": 0.048, "held": 0.096, "planned": 0.096} {
		if q := got[key]; q.PricePerHour < want-1e-6 || q.PricePerHour > want+1e-6 || q.Source != "live" {
			t.Errorf("%s: %+v, want %v", key, q, want)
		}
	}
	m, err := w.create(machine("aws-spot-0", "m5.large", "us-east-1b", provider.Spot), "op")
	must(t, err)
	id, err := instanceID(m.HostRef)
	must(t, err)
	n.m.mu.Lock()
	n.m.queue = []string{fmt.Sprintf(`{"source":"aws.ec2","detail-type":%q,"detail":{"instance-id":%q}}`, detailSpotEnd, id)}
	n.m.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	news, ended := make(chan provider.Notice, 1), make(chan error, 1)
	go func() {
		ended <- w.b.Notify(ctx, func(n provider.Notice) {
			select {
			case news <- n:
			default:
			}
		})
	}()
	select {
	case one := <-news:
		if one.MachineID != m.ID || one.InterruptionProbability != 1 {
			t.Errorf("heard %+v", one)
		}
	case <-ctx.Done():
		t.Error("no notice is heard")
	}
	cancel()
	must(t, <-ended)
}

// PROV-19.1, 19.2, 28.11: the whole program before an AWS that throttles: calls stay within their budget, no machine is launched twice, and all
// become idle.
func TestBudgetsOnNetwork(t *testing.T) {
	const machines, parallel, perSecond, burst = 40, 4, 50, 5
	n, _ := newModelOnNetwork(t, "us-east-1")
	refusals := 3
	n.setFault(func(name string) *httpFault {
		if name != "ec2.CreateFleet" || refusals == 0 {
			return nil
		}
		refusals--
		return &httpFault{status: http.StatusServiceUnavailable, body: `<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors></Response>`}
	})
	self, err := os.Executable()
	must(t, err)
	p := &conformance.Process{Path: self, Dir: t.TempDir(), Env: []string{asProvider + "=1"}}
	for k, v := range n.environment() {
		p.Env = append(p.Env, k+"="+v)
	}
	file := filepath.Join(p.Dir, "config.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `
launch_template: {name: nodes}
kubeconfig_dir: %s
calls: {ec2.CreateFleet: {parallel: %d, per_second: %d, burst: %d}}
offerings:
- {name: m5, instance_type: m5.large, zone: us-east-1a, capacity_type: on_demand, count: %d, price_per_hour: 1, resources: {cpu: "2", memory: 8Gi}}
`, p.Dir, parallel, perSecond, burst, machines), 0o600))
	p.Args = []string{"--config", file}
	p.StartT(t)
	client := bigfleetv1alpha1connect.NewCapacityProviderClient(http.DefaultClient, "http://"+p.Addr())
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	list := func(state pb.MachineState) []*pb.Machine {
		answer, err := client.List(t.Context(), connect.NewRequest(&pb.ListFilter{States: []pb.MachineState{state}}))
		must(t, err)
		return answer.Msg.GetMachines()
	}
	for limit := time.Now().Add(time.Minute); list(pb.MachineState_MACHINE_STATE_SPECULATIVE)[0].GetPricePerHour() != 0.096; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the price of AWS does not reach the slots")
		}
	}
	began := time.Now()
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() {
			if _, err := client.Create(t.Context(), connect.NewRequest(&pb.CreateRequest{MachineId: fmt.Sprintf("aws-m5-%d", i)})); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for limit := time.Now().Add(2 * time.Minute); len(list(pb.MachineState_MACHINE_STATE_IDLE)) < machines; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d of %d machines are idle", len(list(pb.MachineState_MACHINE_STATE_IDLE)), machines)
		}
	}
	n.m.mu.Lock()
	made := len(n.m.Instances)
	n.m.mu.Unlock()
	launches := n.of("ec2.CreateFleet")
	if len(launches) != machines+3 || made != machines {
		t.Errorf("%d launches for %d machines and 3 refusals made %d instances", len(launches), machines, made)
	}
	if most := n.most("ec2.CreateFleet"); most > parallel {
		t.Errorf("%d launches at once, the budget is %d", most, parallel)
	}
	for i, c := range launches { // the budget's clock began with the program, so this is what it allows at most
		if most := burst + perSecond*c.at.Sub(began).Seconds() + parallel; float64(i+1) > most {
			t.Fatalf("launch %d came %s after the first, the budget allows %.0f", i+1, c.at.Sub(began), most)
		}
	}
}
