package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// edits are the flags that stand for common edits.
type edits struct {
	add      []string // cluster=cpu=4,memory=8Gi[;priority=100]
	scale    []string // cluster=factor
	drop     []string // cluster
	remove   []string // machine
	price    []string // type|zone=factor
	stockOut []string // type[@zone]
	drain    []string // zone
	lift     bool
	let      bool
}

func (e *edits) bind(fs *pflag.FlagSet) {
	fs.StringArrayVar(&e.add, "add-demand", nil, "add demand: CLUSTER:cpu=4,memory=8Gi[,priority=N] in total, or with pods=N for N Pods of that size; repeatable")
	fs.StringArrayVar(&e.scale, "scale", nil, "multiply a cluster's demand: CLUSTER=FACTOR; repeatable")
	fs.StringArrayVar(&e.drop, "drop-cluster", nil, "plan as if this cluster were retired; repeatable")
	fs.StringArrayVar(&e.remove, "remove-machine", nil, "plan as if this machine were gone; repeatable")
	fs.StringArrayVar(&e.price, "price", nil, "multiply prices: TYPE[@ZONE]=FACTOR; repeatable")
	fs.StringArrayVar(&e.stockOut, "stock-out", nil, "plan as if TYPE[@ZONE] were sold out; repeatable")
	fs.StringArrayVar(&e.drain, "drain-zone", nil, "plan as if this zone were taken out of service; repeatable")
	fs.BoolVar(&e.let, "lift-holds", false, "plan as if no need were blocked: each operator connected, no bootstrap failed")
	fs.BoolVar(&e.lift, "lift-pause", false, "plan as if nothing were paused")
}

func (e *edits) apply(req *bigfleetv1alpha1.PlanRequest) error {
	for _, text := range e.add {
		d, err := demand(text)
		if err != nil {
			return err
		}
		req.Demand = append(req.Demand, d)
	}
	for _, text := range e.scale {
		cluster, factor, err := factorOf("--scale", text)
		if err != nil {
			return err
		}
		req.Demand = append(req.Demand, &bigfleetv1alpha1.DemandEdit{ClusterId: cluster, Edit: &bigfleetv1alpha1.DemandEdit_Scale{Scale: factor}})
	}
	for _, cluster := range e.drop {
		req.Demand = append(req.Demand, &bigfleetv1alpha1.DemandEdit{ClusterId: cluster, Edit: &bigfleetv1alpha1.DemandEdit_Drop{Drop: true}})
	}
	for _, id := range e.remove {
		req.Machines = append(req.Machines, &bigfleetv1alpha1.MachineEdit{Edit: &bigfleetv1alpha1.MachineEdit_Remove{Remove: id}})
	}
	for _, text := range e.price {
		pool, factor, err := factorOf("--price", text)
		if err != nil {
			return err
		}
		edit := poolOf(pool)
		edit.Factor = factor
		req.Machines = append(req.Machines, &bigfleetv1alpha1.MachineEdit{Edit: &bigfleetv1alpha1.MachineEdit_Price{Price: edit}})
	}
	for _, pool := range e.stockOut {
		req.Machines = append(req.Machines, &bigfleetv1alpha1.MachineEdit{Edit: &bigfleetv1alpha1.MachineEdit_StockOut{StockOut: poolOf(pool)}})
	}
	for _, zone := range e.drain {
		req.Machines = append(req.Machines, &bigfleetv1alpha1.MachineEdit{Edit: &bigfleetv1alpha1.MachineEdit_DrainZone{DrainZone: zone}})
	}
	req.LiftHolds = req.GetLiftHolds() || e.let
	req.LiftPauses = req.GetLiftPauses() || e.lift
	return nil
}

func factorOf(flag, text string) (string, float64, error) {
	i := strings.LastIndex(text, "=")
	if i <= 0 {
		return "", 0, exit.Usagef("%s %s: want NAME=FACTOR", flag, text)
	}
	factor, err := strconv.ParseFloat(text[i+1:], 64)
	if err != nil || factor < 0 {
		return "", 0, exit.Usagef("%s %s: the factor is not a positive number", flag, text)
	}
	return text[:i], factor, nil
}

func poolOf(text string) *bigfleetv1alpha1.PriceEdit {
	instanceType, zone, _ := strings.Cut(text, "@")
	return &bigfleetv1alpha1.PriceEdit{InstanceType: instanceType, Zone: zone}
}

// demand reads CLUSTER:cpu=4,memory=8Gi,priority=100. Cluster ids may hold colons, so the last one counts. With pods=N the amounts are those
// of one Pod: only then can the plan tell how many Pods fit on a machine.
func demand(text string) (*bigfleetv1alpha1.DemandEdit, error) {
	i := strings.LastIndex(text, ":")
	if i <= 0 {
		return nil, exit.Usagef("--add-demand %s names no cluster: write CLUSTER:cpu=4,memory=8Gi[,priority=N]", text)
	}
	need := &bigfleetv1alpha1.CapacityNeed{AggregateResources: map[string]string{}, MinUnit: map[string]string{}}
	pods := int64(0)
	for _, part := range strings.Split(text[i+1:], ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok || name == "" || value == "" {
			return nil, exit.Usagef("--add-demand %s: %q is not an amount: write CLUSTER:cpu=4,memory=8Gi[,priority=N]", text, part)
		}
		if name == "priority" {
			p, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return nil, exit.Usagef("--add-demand %s: priority %s is not a 32-bit number", text, value)
			}
			need.Priority = int32(p)
			continue
		}
		if name == "pods" {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 || n > podsMax {
				return nil, exit.Usagef("--add-demand %s: pods=%s: it must be 1 to %d", text, value, podsMax)
			}
			pods = n
			continue
		}
		if strings.HasPrefix(value, "-") {
			return nil, exit.Usagef("--add-demand %s: %s is negative; --scale CLUSTER=0.5 halves the demand of a cluster", text, part)
		}
		need.AggregateResources[name] = value
	}
	if pods > 0 {
		if err := ofPods(need, pods); err != nil {
			return nil, exit.Usagef("--add-demand %s: %v", text, err)
		}
	}
	return &bigfleetv1alpha1.DemandEdit{ClusterId: text[:i], Edit: &bigfleetv1alpha1.DemandEdit_Add{Add: need}}, nil
}

// podsMax bounds the Pods of one edit: the largest cluster has fewer.
const podsMax = 1_000_000

// ofPods makes the amounts of a need those of one Pod, of which there are so many.
func ofPods(need *bigfleetv1alpha1.CapacityNeed, pods int64) error {
	if len(need.GetAggregateResources()) == 0 {
		return errors.New("pods=N needs the size of a Pod, for example pods=10,cpu=2,memory=4Gi")
	}
	for name, value := range need.GetAggregateResources() {
		one, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("%s=%s is not a quantity", name, value)
		}
		need.MinUnit[name] = value
		all := one.DeepCopy()
		if !all.Mul(pods) {
			return fmt.Errorf("%d times %s=%s is too much", pods, name, value)
		}
		need.AggregateResources[name] = all.String()
	}
	return nil
}
