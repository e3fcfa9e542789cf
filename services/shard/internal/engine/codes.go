package engine

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// code is the text of one code: its name on paper and in records, a sentence for people, and what could be done. Each
// table below is positional and its length is checked by the compiler, so a code without a sentence does not compile
// (ENG-19.10).
type code struct{ name, say, do string }

var detailCodes = [...]code{
	{"", "No further detail.", ""},
	{"CLUSTER_OFFLINE", "The cluster's operator is not connected, so nothing is bought for it.", "Bring the operator back; demand is kept."},
	{"BOOTSTRAP_BACKOFF", "The last bootstrap for this need failed. The next attempt follows after a backoff.", "Check the cluster's bootstrap template."},
	{"PARKED", "No domain can hold the gang, and retries have not helped. It waits for the next probe.", "Add machines to one domain, or make the gang smaller."},
	{"DOMAIN_TOO_SMALL", "No domain can hold the gang, even with all machines of the domain free.", "Make the gang smaller, use larger machines, or a wider topology key."},
	{"NO_MATCH", "No machine matches the requirements, in any state.", "Remove a requirement (node selector, affinity), or add matching machines."},
	{"DIMENSION_MISSING", "Machines match, but none of them offers one of the requested resources.", "Add machines that offer the resource."},
	{"TOO_SMALL", "Machines match, but none is large enough for one of these Pods.", "Request less for each Pod, or add larger machines."},
	{"SPREAD_BLOCKED", "Machines are free, but only in domains that the spread constraint excludes.", "Add machines in the other domains, or increase maxSkew."},
	{"NODE_NOT_JOINED", "A machine was configured, but its Node never joined the cluster.", "Check the bootstrap template and the network of the Nodes."},
	{"PREEMPTION_SHORT", "Machines of lower priority could be preempted, but they free too little capacity.", "Add machines, or raise the priority."},
	{"STOCK_OUT", "The suitable machines are out of stock at the provider.", "Allow other types, zones or capacity types."},
	{"QUOTA", "The quota for the suitable machines is used up.", "Raise the quota, or allow other types."},
	{"WITHHELD", "The suitable machines are withheld.", "`bigfleet history machine/ID` shows why a machine is withheld."},
	{"HELD_BY_OTHERS", "Other needs hold the suitable machines.", "Add machines, or raise the priority."},
	{"STARTING", "Machines are being configured.", "No action is needed: their Nodes will join."},
	{"CREATING", "Machines are being created.", "No action is needed: they are configured as soon as they exist."},
	{"WAITING_FOR_DRAIN", "The need waits for machines that are being drained.", "No action is needed unless a drain is stuck: `bigfleet get drains` names what blocks it."},
	{"NODE_NOT_READY", "A Node that joined is no longer Ready.", "Check the Node; the cluster is responsible for its recovery."},
	{"UNPLACED", "Capacity covers the demand, but the scheduler has not placed all Pods.", "Check the events of the pending Pods."},
	{"SPREAD_IGNORED", "The spread constraint is ignored because the need requires a single domain.", "Remove the spread constraint or the single-domain requirement."},
}

var _ [0]struct{} = [len(detailCodes) - Details]struct{}{}

// String returns the name of the detail as the wire spells it, without its prefix.
func (d Detail) String() string { return nameOf(detailCodes[:], int(d)) }

// Sentence says the detail in words, and Remedy what could be done about it.
func (d Detail) Sentence() string { return detailCodes[min(int(d), Details-1)].say }

// Remedy says what could be done about the detail, or "".
func (d Detail) Remedy() string { return detailCodes[min(int(d), Details-1)].do }

var reasonCodes = [...]code{
	{"", "Satisfied.", ""},
	{"PRIORITY_STARVED", "Needs of equal or higher precedence hold the matching supply.", ""},
	{"NO_MATCHING_SUPPLY", "No suitable machine is in this shard.", ""},
	{"TOPOLOGY_UNSATISFIABLE", "The topology constraint cannot be met in this shard.", ""},
	{"PREEMPTION_EXHAUSTED", "Machines of lower priority could be preempted, but they free too little capacity.", ""},
}

// String returns the name of the reason as the wire spells it, without its prefix.
func (r UnmetReason) String() string { return nameOf(reasonCodes[:], int(r)) }

var causeCodes = [...]code{
	{"", "", ""},
	{"phase1.idle", "An Idle machine was free.", ""},
	{"phase1.speculative", "A machine was available to buy, and none was Idle.", ""},
	{"phase1.handover", "The machine was reserved for this need and is now Idle.", ""},
	{"phase2.inversion", "A need of higher priority takes this machine from one of lower priority.", ""},
	{"phase2.excess", "No need uses the machine, and a need of higher priority requires it.", ""},
	{"phase3.excess", "No need uses the machine any more.", ""},
	{"phase3.excess_promised", "No need uses the machine any more, and another need waits for it.", ""},
	{"phase3.gang_moved", "The gang that used the machine has moved to another domain.", ""},
	{"phase3.not_joined", "The machine's Node never joined its cluster.", ""},
	{"phase3.release", "The machine has been Idle for longer than its hold time.", ""},
	{"move.drained", "The machine moves to another shard, where a need of higher priority and penalty requires it.", ""},
}

var _ [0]struct{} = [len(causeCodes) - int(causes)]struct{}{}

// String returns the name of the cause, for example "phase2.inversion".
func (c Cause) String() string { return nameOf(causeCodes[:], int(c)) }

// Sentence says the cause in words.
func (c Cause) Sentence() string { return causeCodes[min(int(c), int(causes)-1)].say }

var keepCodes = [...]code{
	{"", "The current plan acts on it.", ""},
	{"CLAIMED", "In use by a need.", "Released when that need requires less."},
	{"CLAIMED_WITH_SHARES", "In use by several needs.", "Released when all of them require less."},
	{"NOT_HEARD", "Its cluster has not reported since the shard started.", "Evaluated when the cluster's first roll-up arrives. Bring its operator back, or retire the cluster if it is gone."},
	{"READINESS_GUARD", "Its Node never joined. Too many other Nodes did not join either, so none is released.", "Check the bootstrap template."},
	{"NOT_OWNED", "Another shard owns it.", "The owning shard decides about it."},
	{"SURPLUS_MATURES", "No need uses it any more. It finishes starting first.", "No action is needed: it is released after it has started."},
	{"PROMISED", "It is reserved for a need.", "Available to other needs when that need requires less."},
	{"PROMISED_UNUSED", "It was reserved for a need that no longer requires it.", "No action is needed: once it is ready, any need may use it. It is deleted after its hold time."},
	{"LEAVING", "It is being released.", "No action is needed. During a drain, `bigfleet get drains` names what blocks it."},
	{"HOLD", "It is Idle and within its hold time.", "Deleted when the hold time ends."},
	{"FIXED", "It is Idle. Machines of its capacity type are never released.", "Any need that fits may use it. To release it, remove it at its provider."},
	{"WITHHELD", "It is withheld.", "Offered again when the mark expires."},
	{"SLOT", "It is available to buy and costs nothing.", "Bought when a need requires it."},
	{"FAILED", "It has failed and waits for repair, retry or forget.", "When the cause is fixed, run `bigfleet machines retry ID`; or `bigfleet machines forget ID`."},
}

// withheldCodes say what a mark means for the machine that has it.
var withheldCodes = [...]code{
	{"", "", ""},
	{"backoff", "an action on it failed recently", "It is retried automatically. If that fails too, check the provider's error."},
	{"stock-out", "its provider is out of stock for its type", "It is retried automatically. Request more from the provider, or allow other types and zones."},
	{"quota", "this shard has used up its slice of the quota", "Raise the quota, or this shard's slice of it."},
	{"forgotten", "it was forgotten on request", "It is ignored while its provider still lists it. `bigfleet machines retry ID` makes it usable again."},
	{"reserved", "it is reserved for a move to another shard", "It is handed over when the move is complete. Cancel the move to keep it."},
	{"not-joined", "it never became a Node of its cluster", "Other clusters may use it now, and that cluster when the mark expires. Check the bootstrap template and the network of the Nodes."},
	{"elsewhere", "it serves a cluster here, and its domain belongs to another shard", "Draining it does not help here: once Idle it belongs to the other shard. Move the domain back to use it here."},
	{"provider-down", "its provider does not answer", "It is offered again when the provider answers. `bigfleet provider ping ADDRESS` checks the provider."},
}

var _ [0]struct{} = [len(withheldCodes) - inventory.WithheldReasons]struct{}{}

var _ [0]struct{} = [len(keepCodes) - int(KeepReasonShellReserve)]struct{}{}

// String returns the name of the keep reason as the wire spells it, without its prefix.
func (k KeepReason) String() string { return nameOf(keepCodes[:], int(k)) }

// Sentence says the keep reason in words.
func (k KeepReason) Sentence() string {
	return keepCodes[min(int(k), int(KeepReasonShellReserve)-1)].say
}

// Change says what would have to change for a machine that is kept to go, or "".
func (k KeepReason) Change() string { return keepCodes[min(int(k), int(KeepReasonShellReserve)-1)].do }

// MarkSentence says what a mark means for the machine that has it, and what could be done about it.
func MarkSentence(r inventory.WithheldReason) (say, do string) {
	c := withheldCodes[r]
	return c.say, c.do
}

func nameOf(table []code, i int) string {
	if i < len(table) {
		return table[i].name
	}
	return "UNKNOWN"
}
