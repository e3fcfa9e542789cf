package verdict

import (
	"fmt"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Reasons of the condition Fulfilled (OP-14.1). The list is closed.
const (
	Satisfied             = "Satisfied"
	Provisioning          = "Provisioning"
	PriorityStarved       = "PriorityStarved"
	NoMatchingSupply      = "NoMatchingSupply"
	TopologyUnsatisfiable = "TopologyUnsatisfiable"
	SpreadUnsatisfiable   = "SpreadUnsatisfiable"
	PreemptionExhausted   = "PreemptionExhausted"
	QuotaExceeded         = "QuotaExceeded"
	StockOut              = "StockOut"
	Withheld              = "Withheld"
	ProviderUnavailable   = "ProviderUnavailable"
	WaitingForDrain       = "WaitingForDrain"
	Parked                = "Parked"
	BootstrapFailed       = "BootstrapFailed"
	Held                  = "Held"
	Rejected              = "Rejected"
	ShardUnreachable      = "ShardUnreachable"
	Paused                = "Paused"
)

// says is what a reason means to a user when the shard has no words of its own.
var says = map[string]string{
	Satisfied:             "capacity is bound or on its way",
	Provisioning:          "machines are being created or configured",
	PriorityStarved:       "matching machines exist, but workloads of equal or higher priority hold them",
	NoMatchingSupply:      "no machine of this shape is available in the fleet",
	TopologyUnsatisfiable: "no single topology domain can hold the whole group",
	SpreadUnsatisfiable:   "the topology spread rule cannot be met with the machines there are",
	PreemptionExhausted:   "taking machines from workloads of lower priority would free too little",
	QuotaExceeded:         "the quota for such machines is used up",
	StockOut:              "the provider has no such machines now; it is asked again with pauses",
	Withheld:              "machines of this shape exist and are set aside for now: a failure, a move, or a person's word",
	ProviderUnavailable:   "the provider of machines does not answer",
	WaitingForDrain:       "a machine is being emptied for this workload",
	Parked:                "no topology domain could hold the group for long; it is tried again at intervals",
	BootstrapFailed:       "boot data for a machine could not be rendered",
	Held:                  "the demand of this cluster changed so much that the fleet waits for confirmation before it follows",
	Rejected:              "the fleet refused the demand of this cluster",
	ShardUnreachable:      "the operator has no connection to the fleet",
	Paused:                "the fleet is paused or in dry run",
}

var byDetail = map[pb.NeedDetail]string{
	pb.NeedDetail_NEED_DETAIL_CLUSTER_OFFLINE: ShardUnreachable, pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_BACKOFF: BootstrapFailed,
	pb.NeedDetail_NEED_DETAIL_PARKED: Parked, pb.NeedDetail_NEED_DETAIL_DOMAIN_TOO_SMALL: TopologyUnsatisfiable,
	pb.NeedDetail_NEED_DETAIL_NO_MATCH: NoMatchingSupply, pb.NeedDetail_NEED_DETAIL_DIMENSION_MISSING: NoMatchingSupply,
	pb.NeedDetail_NEED_DETAIL_TOO_SMALL: NoMatchingSupply, pb.NeedDetail_NEED_DETAIL_SPREAD_BLOCKED: SpreadUnsatisfiable,
	pb.NeedDetail_NEED_DETAIL_NODE_NOT_JOINED: Provisioning, pb.NeedDetail_NEED_DETAIL_PREEMPTION_SHORT: PreemptionExhausted,
	pb.NeedDetail_NEED_DETAIL_STOCK_OUT: StockOut, pb.NeedDetail_NEED_DETAIL_QUOTA: QuotaExceeded,
	pb.NeedDetail_NEED_DETAIL_WITHHELD:       Withheld,
	pb.NeedDetail_NEED_DETAIL_HELD_BY_OTHERS: PriorityStarved, pb.NeedDetail_NEED_DETAIL_STARTING: Provisioning,
	pb.NeedDetail_NEED_DETAIL_CREATING: Provisioning, pb.NeedDetail_NEED_DETAIL_WAITING_FOR_DRAIN: WaitingForDrain,
	pb.NeedDetail_NEED_DETAIL_NODE_NOT_READY: Provisioning, pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_ERROR: BootstrapFailed,
	pb.NeedDetail_NEED_DETAIL_NEW_CLUSTER:      Provisioning,
	pb.NeedDetail_NEED_DETAIL_PROVIDER_BREAKER: ProviderUnavailable, pb.NeedDetail_NEED_DETAIL_PAUSED: Paused, pb.NeedDetail_NEED_DETAIL_RAIL: Paused,
}

var byReason = map[pb.UnmetReason]string{
	pb.UnmetReason_UNMET_REASON_PRIORITY_STARVED: PriorityStarved, pb.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY: NoMatchingSupply,
	pb.UnmetReason_UNMET_REASON_TOPOLOGY_UNSATISFIABLE: TopologyUnsatisfiable, pb.UnmetReason_UNMET_REASON_PREEMPTION_EXHAUSTED: PreemptionExhausted,
}

// verdict is what is said of a row.
type verdict struct {
	reason, message, suggestion string
}

func (v verdict) satisfied() bool { return v.reason == Satisfied }

// translate puts a row's status into the words of the condition. The finer detail goes first.
func translate(s *pb.NeedStatus) verdict {
	v := verdict{reason: NoMatchingSupply, message: s.Text, suggestion: s.Suggestion}
	switch {
	case s.Satisfied:
		v.reason = Satisfied
	case byDetail[s.Detail] != "":
		v.reason = byDetail[s.Detail]
	case byReason[s.Reason] != "":
		v.reason = byReason[s.Reason]
	}
	if v.message == "" {
		v.message = says[v.reason]
	}
	if s.Satisfied && s.MachinesOnTheWay > 0 {
		v.message += fmt.Sprintf(" (%d machines on their way)", s.MachinesOnTheWay)
	}
	if v.suggestion != "" && !v.satisfied() {
		v.message = strings.TrimRight(v.message, ". ") + ". " + v.suggestion
	}
	const max = 1024
	if len(v.message) > max {
		v.message = strings.ToValidUTF8(v.message[:max], "")
	}
	return v
}
