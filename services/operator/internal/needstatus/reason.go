package needstatus

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
	ConfigureFailed       = "ConfigureFailed"
	Held                  = "Held"
	Rejected              = "Rejected"
	ShardUnreachable      = "ShardUnreachable"
	Paused                = "Paused"
)

// defaultMessage explains a reason when the shard sent no text.
var defaultMessage = map[string]string{
	Satisfied:             "Capacity is bound or in preparation.",
	Provisioning:          "Machines are being created or configured.",
	PriorityStarved:       "Matching machines exist, but workloads of equal or higher priority use them.",
	NoMatchingSupply:      "The fleet has no machine of this shape.",
	TopologyUnsatisfiable: "No single topology domain can hold the whole group.",
	SpreadUnsatisfiable:   "The available machines cannot satisfy the topology spread constraint.",
	PreemptionExhausted:   "Preempting workloads of lower priority would free too little.",
	QuotaExceeded:         "The quota for such machines is used up.",
	StockOut:              "The provider is out of such machines. BigFleet retries at intervals.",
	Withheld:              "Machines of this shape exist but are withheld: after a failure, for a move, or by an administrator.",
	ProviderUnavailable:   "The machine provider does not answer.",
	WaitingForDrain:       "A machine is being drained for this workload.",
	Parked:                "No topology domain has been able to hold the group for a long time. BigFleet retries at intervals.",
	BootstrapFailed:       "The bootstrap data for a machine could not be rendered.",
	ConfigureFailed:       "The provider could not configure the last machine for this demand. BigFleet retries at intervals.",
	Held:                  "The demand of this cluster changed so much that the shard waits for confirmation.",
	Rejected:              "The shard refused the demand of this cluster.",
	ShardUnreachable:      "The operator has no session with its shard.",
	Paused:                "The shard is paused or in dry run.",
}

var byDetail = map[pb.NeedDetail]string{
	pb.NeedDetail_NEED_DETAIL_CLUSTER_OFFLINE: ShardUnreachable, pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_BACKOFF: BootstrapFailed,
	pb.NeedDetail_NEED_DETAIL_PARKED: Parked, pb.NeedDetail_NEED_DETAIL_DOMAIN_TOO_SMALL: TopologyUnsatisfiable,
	pb.NeedDetail_NEED_DETAIL_NO_MATCH: NoMatchingSupply, pb.NeedDetail_NEED_DETAIL_DIMENSION_MISSING: NoMatchingSupply,
	pb.NeedDetail_NEED_DETAIL_TOO_SMALL: NoMatchingSupply, pb.NeedDetail_NEED_DETAIL_SPREAD_BLOCKED: SpreadUnsatisfiable,
	pb.NeedDetail_NEED_DETAIL_NODE_NOT_JOINED: Provisioning, pb.NeedDetail_NEED_DETAIL_PREEMPTION_SHORT: PreemptionExhausted,
	pb.NeedDetail_NEED_DETAIL_STOCK_OUT: StockOut, pb.NeedDetail_NEED_DETAIL_QUOTA: QuotaExceeded,
	pb.NeedDetail_NEED_DETAIL_WITHHELD:       Withheld,
	pb.NeedDetail_NEED_DETAIL_GANG_SHORT:     PriorityStarved,
	pb.NeedDetail_NEED_DETAIL_HELD_BY_OTHERS: PriorityStarved, pb.NeedDetail_NEED_DETAIL_STARTING: Provisioning,
	pb.NeedDetail_NEED_DETAIL_CREATING: Provisioning, pb.NeedDetail_NEED_DETAIL_WAITING_FOR_DRAIN: WaitingForDrain,
	pb.NeedDetail_NEED_DETAIL_NODE_NOT_READY: Provisioning, pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_ERROR: BootstrapFailed,
	pb.NeedDetail_NEED_DETAIL_NEW_CLUSTER:      Provisioning,
	pb.NeedDetail_NEED_DETAIL_PROVIDER_BREAKER: ProviderUnavailable, pb.NeedDetail_NEED_DETAIL_PAUSED: Paused, pb.NeedDetail_NEED_DETAIL_RAIL: Paused,
	pb.NeedDetail_NEED_DETAIL_PROVIDER_DOWN: ProviderUnavailable, pb.NeedDetail_NEED_DETAIL_LIMIT: QuotaExceeded,
	pb.NeedDetail_NEED_DETAIL_CONFIGURE_FAILED: ConfigureFailed, pb.NeedDetail_NEED_DETAIL_OTHER_SHARD: Withheld,
	pb.NeedDetail_NEED_DETAIL_POSTPONED: Provisioning, pb.NeedDetail_NEED_DETAIL_TOO_MANY_DOMAINS: TopologyUnsatisfiable,
}

var byReason = map[pb.UnmetReason]string{
	pb.UnmetReason_UNMET_REASON_PRIORITY_STARVED: PriorityStarved, pb.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY: NoMatchingSupply,
	pb.UnmetReason_UNMET_REASON_TOPOLOGY_UNSATISFIABLE: TopologyUnsatisfiable, pb.UnmetReason_UNMET_REASON_PREEMPTION_EXHAUSTED: PreemptionExhausted,
}

// needStatus is the status of a row as users read it.
type needStatus struct {
	reason, message, suggestion string
	coming                      int32 // machines on their way
}

func (v needStatus) satisfied() bool { return v.reason == Satisfied }

// translate maps the shard's status to a condition. The detail takes precedence over the reason.
func translate(s *pb.NeedStatus) needStatus {
	v := needStatus{reason: NoMatchingSupply, message: s.Text, suggestion: s.Suggestion, coming: int32(s.MachinesOnTheWay)}
	switch {
	case s.Satisfied:
		v.reason = Satisfied
	case byDetail[s.Detail] != "":
		v.reason = byDetail[s.Detail]
	case byReason[s.Reason] != "":
		v.reason = byReason[s.Reason]
	}
	if v.message == "" {
		v.message = defaultMessage[v.reason]
	}
	if s.Satisfied && s.MachinesOnTheWay > 0 {
		v.message += fmt.Sprintf(" (%d machines in preparation)", s.MachinesOnTheWay)
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
