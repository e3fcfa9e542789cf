package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// inParts applies the parser and the rules of the proto to the parts of a roll-up of which they would say something. Whether a quantity can be read comes before
// all that a rule says, and a second Same before all other rules (WIRE-3.9); the first part that the rules refuse ends it.
func (g *Gate) inParts(m *pb.ClusterCapacityNeeds) *core.Rejection {
	odd := oddParts(m)
	for i := range odd {
		if r := odd[i].parses(); r != nil {
			return r
		}
	}
	if i := slices.IndexFunc(odd, func(p part) bool { return p.twoSames() }); i > 0 {
		odd[0], odd[i] = odd[i], odd[0]
	}
	for i := range odd {
		if r := odd[i].broken(g.rules.Validate(odd[i].m)); r != nil {
			return r
		}
	}
	return nil
}

func (p *part) twoSames() bool {
	n, is := p.m.(*pb.CapacityNeed)
	same := 0
	for _, r := range n.GetRequirements() {
		if r.GetOperator() == pb.NodeSelectorRequirement_OPERATOR_SAME {
			same++
		}
	}
	return is && same > 1
}

// part is a piece of a roll-up that is checked by itself.
type part struct {
	m       proto.Message
	need    int64  // index of the row, or -1
	path    string // from the roll-up; empty for its head
	amounts []amounts
}

type amounts struct {
	field string
	of    map[string]string
}

// headOf is all of a roll-up but the elements of its lists. A list that is too long is so for the rules.
func headOf(m *pb.ClusterCapacityNeeds) part {
	head := &pb.ClusterCapacityNeeds{ClusterId: m.ClusterId, NodeOverhead: m.NodeOverhead}
	if n := len(m.OutOfService); n > outOfServiceMax {
		head.OutOfService = slices.Repeat([]*pb.MachineOutOfService{{}}, n)
	}
	if n := len(m.NodeRooms); n > nodeRoomsMax {
		head.NodeRooms = slices.Repeat([]*pb.NodeRoom{{InstanceType: "t"}}, n)
	}
	return part{m: head, need: -1, amounts: []amounts{{"node_overhead", m.NodeOverhead}}}
}

func (p *part) at(field string) string {
	if p.path == "" || field == "" {
		return p.path + field
	}
	return p.path + "." + field
}

// parses lets the parser have the last word on quantities that match the pattern (WIRE-3.11).
func (p *part) parses() *core.Rejection {
	for _, a := range p.amounts {
		for _, name := range sortedNames(a.of) {
			if _, err := quantity.Parse(a.of[name], quantity.Up); err != nil && !errors.Is(err, quantity.ErrRange) {
				return reject("quantity", fmt.Sprintf("%q of %s is %v", clip(a.of[name]), clip(name), err), p.need, fmt.Sprintf("%s[%q]", p.at(a.field), clip(name)))
			}
		}
	}
	return nil
}

// broken is what the rules say of the part: the violation that comes first in WIRE-3.9.
func (p *part) broken(err error) (first *core.Rejection) {
	var bad *protovalidate.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &bad) || len(bad.Violations) == 0:
		return reject("invalid", clip(err.Error()), p.need, p.path)
	}
	for _, v := range bad.Violations {
		path := p.at(protovalidate.FieldPathString(v.Proto.GetField()))
		reason := "invalid"
		switch rule := v.Proto.GetRuleId(); {
		case rule == "need.single_same":
			reason = "same"
		case rule == "string.pattern" && isQuantityPath(path):
			reason = "quantity"
		}
		if r := reject(reason, clip(v.Proto.GetMessage()), p.need, path); first == nil || before(r, first) {
			first = r
		}
	}
	return first
}

var reasonOrder = []string{"quantity", "same", "invalid"}

func before(a, b *core.Rejection) bool {
	return slices.Index(reasonOrder, a.Reason) < slices.Index(reasonOrder, b.Reason)
}

func isQuantityPath(path string) bool {
	return strings.Contains(path, "aggregate_resources") || strings.Contains(path, "min_unit") || strings.Contains(path, "node_overhead") || strings.Contains(path, "node_rooms")
}
