package aws

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func offer(name, kind, zone string, c provider.CapacityType, count int) provider.Offering {
	return provider.Offering{Name: name, Count: count, Attributes: provider.Attributes{
		InstanceType: kind, Zone: zone, CapacityType: c, PricePerHour: 1, Resources: recorded.Types[kind].resources(),
	}}
}

func (w *world) prices() (map[string]provider.Quote, error) {
	out := map[string]provider.Quote{}
	err := w.b.Prices(w.Context(), func(q provider.Quote) error { out[q.Offering] = q; return nil })
	return out, err
}

// PROV-28.4, 28.6: the market's price for spot, the plan's rate for what a Savings Plan covers, the list price for the rest, and an override before all;
// monthly interruptions become hourly ones.
func TestPrices(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.Prices = map[string]float64{"cheap": 0.01}
		s.Reservations = map[string]string{"held": "cr-1"}
		s.Interruption = map[string]float64{"m5.large": 0.05}
	}, offer("list", "m5.large", "us-east-1a", provider.OnDemand, 1), offer("spot", "m5.large", "us-east-1b", provider.Spot, 1),
		offer("unknown", "c6g.large", "us-east-1b", provider.Spot, 1),
		offer("held", "m5.large", "us-east-1a", provider.Reserved, 1), offer("planned", "m5.xlarge", "us-east-1a", provider.Reserved, 1),
		offer("cheap", "m5.large", "us-east-1a", provider.OnDemand, 1))
	got, err := w.prices()
	must(t, err)
	list := recorded.Prices["us-east-1"]["m5.large"]
	for key, want := range map[string]float64{
		"list": list, "spot": list * modelDiscount, "held": list, "planned": recorded.Prices["us-east-1"]["m5.xlarge"] * modelDiscount, "cheap": 0.01,
	} {
		if q := got[key]; math.Abs(q.PricePerHour-want) > 1e-6 || q.At.IsZero() {
			t.Errorf("%s: %+v, want %v", key, q, want)
		}
	}
	if got["cheap"].Source != "override" || got["list"].Source != "live" {
		t.Errorf("sources: %+v, %+v", got["cheap"], got["list"])
	}
	// 5 % a month: (1-p)^730 = 0.95.
	if p := got["spot"].InterruptionProbability; math.Abs(math.Pow(1-p, 730)-0.95) > 1e-9 {
		t.Errorf("interruption of spot: %v an hour", p)
	}
	if p := got["unknown"].InterruptionProbability; p != spotFloor || p <= 0 {
		t.Errorf("interruption of an unknown type: %v an hour", p)
	}
	// A slot of a file that changed since is quoted, too.
	later := machine("aws-later-0", "c6g.large", "us-east-1a", provider.OnDemand)
	later.Offering, later.State = "later", lifecycle.Speculative
	w.books[later.ID] = later
	got, err = w.prices()
	must(t, err)
	if q := got["later"]; q.PricePerHour != recorded.Prices["us-east-1"]["c6g.large"] {
		t.Errorf("a new offering: %+v", q)
	}
	if n := w.m.calls["pricing.GetProducts"]; n != 2 {
		t.Errorf("the price list was asked %d times for two types", n)
	}
}

// PROV-28.4: without AWS's list the recorded price counts, and says so; one that is not recorded is an error.
func TestPinnedPrices(t *testing.T) {
	w := newWorld(t, nil, offer("list", "m5.large", "us-east-1a", provider.OnDemand, 1), offer("none", "x9.large", "us-east-1a", provider.OnDemand, 1))
	w.m.fault = func(name string) (error, error) {
		if name == "pricing.GetProducts" {
			return apiError("AccessDeniedException", "no"), nil
		}
		return nil, nil
	}
	got, err := w.prices()
	if err == nil || !strings.Contains(err.Error(), "x9.large") {
		t.Errorf("a type without any price: %v", err)
	}
	if q := got["list"]; q.Source != "pinned" || q.PricePerHour != 0.096 {
		t.Errorf("the recorded price: %+v", q)
	}
	if _, quoted := got["none"]; quoted {
		t.Error("a price was invented")
	}
}

// PROV-28.1: offerings of two regions from recorded shapes. Their numbers are AWS's, as recorded.json says.
func TestOfferings(t *testing.T) {
	for region, zones := range map[string]string{"us-east-1": "us-east-1a,us-east-1b", "us-gov-west-1": "us-gov-west-1a"} {
		cmd := NewCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"offerings", "--offline", "--region", region, "--zones", zones, "--types", "m5.large,c6g.large,g4dn.8xlarge", "--count", "50"})
		must(t, cmd.ExecuteContext(t.Context()))
		file := "testdata/offerings-" + region + ".yaml"
		if *rewrite {
			must(t, os.WriteFile(file, out.Bytes(), 0o644))
		}
		want, err := os.ReadFile(file)
		must(t, err)
		if out.String() != string(want) {
			t.Errorf("%s: go test -run TestOfferings -rewrite\n%s", file, out.String())
		}
		list, err := provider.ReadOfferings(file)
		must(t, err)
		for _, o := range list {
			if o.CapacityType == provider.Spot && o.InterruptionProbability <= 0 || o.PricePerHour <= 0 {
				t.Errorf("%s: %+v", o.Key(), o)
			}
			if o.CapacityType == provider.Spot && recorded.Types[o.InstanceType].LocalDiskGB > 0 {
				t.Errorf("%s: spot with local disks", o.Key())
			}
		}
	}
	cmd := NewCommand()
	cmd.SetArgs([]string{"offerings", "--offline", "--region", "mars-1", "--zones", "a", "--types", "m5.large"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "mars-1") || !strings.Contains(err.Error(), "us-east-1") {
		t.Errorf("an unknown region: %v", err)
	}
	live := selection{region: "us-east-1", types: []string{"m5.large"}, zones: []string{"us-east-1a"}, capacity: []string{"spot"}, count: 1}
	m, err := newModel("", 0)
	must(t, err)
	_, price, _, err := live.askCloud(t.Context(), m.cloud())
	must(t, err)
	if p, err := price("m5.large", "us-east-1a", "spot"); err != nil || p != 0.096*modelDiscount {
		t.Errorf("the market's price: %v, %v", p, err)
	}
	if _, err := price("m5.large", "us-east-1z", "spot"); err == nil {
		t.Error("a zone without a market has a price")
	}
}

// PROV-28.1: --check compares the offerings with what the account can have.
func TestCheck(t *testing.T) {
	arm := offer("arm", "c6g.large", "us-east-1a", provider.OnDemand, 1)
	small := offer("small", "m5.large", "us-east-1a", provider.OnDemand, 1)
	small.Resources = map[string]string{"cpu": "1"}
	for _, c := range []struct {
		offering    provider.Offering
		reservation string
		wrong, warn string
	}{
		{offer("good", "m5.large", "us-east-1a", provider.OnDemand, 1), "", "", ""},
		{offer("nowhere", "m5.large", "us-west-9z", provider.OnDemand, 1), "", "not offered in us-west-9z", ""},
		{offer("none", "m99.large", "us-east-1a", provider.OnDemand, 1), "", "m99.large", ""},
		{offer("disks", "g4dn.8xlarge", "us-east-1a", provider.Spot, 1), "", "local disks", "queue_url"},
		{offer("spot", "m5.large", "us-east-1a", provider.Spot, 1), "", "", "queue_url"},
		{arm, "", "kubernetes.io/arch", ""},
		{small, "", "", "2 vCPUs"},
		{offer("r", "m5.large", "us-east-1a", provider.Reserved, 2), "cr-1", "", ""},
		{offer("r", "m5.large", "us-east-1a", provider.Reserved, 3), "cr-1", "", "lower the count"},
		{offer("r", "m5.large", "us-east-1b", provider.Reserved, 1), "cr-1", "us-east-1a", ""},
		{offer("plan", "m5.large", "us-east-1a", provider.Reserved, 20), "", "", ""},
		{offer("plan", "m5.large", "us-east-1a", provider.Reserved, 21), "", "", "Savings Plans"},
	} {
		w := newWorld(t, func(s *settings) {
			if c.reservation != "" {
				s.Reservations = map[string]string{"r": c.reservation}
			}
		}, c.offering)
		warnings, err := w.b.Check(t.Context(), w.b.Offerings)
		if said := fmt.Sprint(err); c.wrong == "" && err != nil || !strings.Contains(said, c.wrong) {
			t.Errorf("%s: %v, want an error with %q", c.offering.Name, err, c.wrong)
		}
		if said := fmt.Sprint(warnings); c.warn == "" && len(warnings) > 0 || !strings.Contains(said, c.warn) {
			t.Errorf("%s: %v, want a warning with %q", c.offering.Name, warnings, c.warn)
		}
	}
}

// PROV-28.6: notices reach the machine; what is not about a machine of ours is deleted and counted; a queue that is away is asked again.
func TestNotices(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.QueueURL = "https://sqs.example/queue" })
	m, err := w.create(large, "op")
	must(t, err)
	id, err := instanceID(m.HostRef)
	must(t, err)
	event := func(kind, instance, state string) string {
		return fmt.Sprintf(`{"version":"0","source":"aws.ec2","detail-type":%q,"detail":{"instance-id":%q,"instance-action":"terminate","state":%q}}`, kind, instance, state)
	}
	w.m.queue = []string{
		event(detailSpotEnd, id, ""), event(detailRisk, id, ""), event(detailState, id, "running"), event(detailState, id, "terminated"),
		event(detailSpotEnd, "i-0123", ""), "no JSON", `{"source":"aws.health"}`,
	}
	w.m.Instances[id].Tags["test/retired"] = "yes"
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	news, ended := make(chan provider.Notice, 16), make(chan error, 1)
	go func() { ended <- w.b.Notify(ctx, func(n provider.Notice) { news <- n }) }()
	got := map[provider.Notice]int{}
	for range 4 {
		select {
		case n := <-news:
			got[n]++
		case <-ctx.Done():
			t.Fatalf("heard %v only", got)
		}
	}
	for n, times := range map[provider.Notice]int{
		{MachineID: m.ID, InterruptionProbability: 1}: 2, {MachineID: m.ID, InterruptionProbability: 0.5}: 1, {MachineID: m.ID, Gone: true}: 1,
	} {
		if got[n] != times {
			t.Errorf("%+v came %d times, want %d", n, got[n], times)
		}
	}
	for {
		w.m.mu.Lock()
		left := len(w.m.queue)
		w.m.mu.Unlock()
		if left == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d messages are left in the queue", left)
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	must(t, <-ended)
}
