package inspect

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Replan is a plan from where a replay stopped (SHARD-28.10): the question of Plan, asked of the past.
type Replan struct {
	Core      *core.Core // nothing else steps it
	View      *core.Publish
	ShardID   string
	Gate      *ingest.Gate
	Providers []string
	Policy    map[string]string // constants of ENG-24 by the names of engine.Policy; times as 90s, amounts as numbers
}

// Run answers the question. The core stays as it is.
func (r Replan) Run(q *pb.PlanRequest) (*pb.PlanResponse, error) {
	s := New(Config{ShardID: r.ShardID, Gate: r.Gate, View: func() *core.Publish { return r.View }, Addresses: map[string]string{}})
	for _, p := range r.Providers {
		s.cfg.Addresses[p] = ""
	}
	edits, warnings, err := s.question(q)
	if err != nil {
		return nil, err
	}
	w := r.Core.Freeze(inventory.NewFreezeBuffer(0)).Thaw()
	policy, err := edited(w.Policy, r.Policy)
	if err != nil {
		return nil, err
	}
	out := s.whatIf(w, edits, policy, q)
	out.Warnings = append(warnings, out.Warnings...)
	return out, nil
}

// times are the constants that are times, and their units.
var times = map[string]time.Duration{"ReclaimGrace": time.Second, "DrainMargin": time.Second, "DrainEstimate": time.Second,
	"StuckAfter": 1, "SharingStep": 1, "SharingCalm": 1, "EmptyAfter": 1, "JoinTimeout": 1, "JoinRetryHold": 1}

// edited is a policy with some constants set otherwise; nil if none is.
func edited(p *engine.Policy, set map[string]string) (*engine.Policy, error) {
	if len(set) == 0 {
		return nil, nil
	}
	if p == nil {
		p = engine.DefaultPolicy()
	}
	out := *p
	v := reflect.ValueOf(&out).Elem()
	var names []string
	for i := range v.NumField() {
		if k := v.Field(i).Kind(); k == reflect.Int64 || k == reflect.Int32 || k == reflect.Int || k == reflect.Bool {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no constant %s; constants are %v", name, names)
		}
		f := v.FieldByName(name)
		if f.Kind() == reflect.Bool {
			is, err := strconv.ParseBool(set[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %q is neither true nor false", name, set[name])
			}
			f.SetBool(is)
			continue
		}
		if unit, is := times[name]; is {
			d, err := time.ParseDuration(set[name])
			if err != nil || d < 0 {
				return nil, fmt.Errorf("%s: %q is not a duration such as 90s", name, set[name])
			}
			f.SetInt(int64(d / unit))
			continue
		}
		n, err := strconv.ParseInt(set[name], 10, f.Type().Bits())
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: %q is not an amount", name, set[name])
		}
		f.SetInt(n)
	}
	return &out, nil
}
