package engine

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// code is the text of one code: its name on paper and in records, a sentence for people, and what could be done. Each
// table below is positional and its length is checked by the compiler, so a code without a sentence does not compile
// (ENG-19.10).
type code struct{ name, say, do string }

var detailCodes = [...]code{
	{"", "Nothing to add.", ""},
	{"CLUSTER_OFFLINE", "The cluster's operator is not connected, so nothing is bought for it.", "Bring the operator back; demand is kept."},
	{"BOOTSTRAP_BACKOFF", "The last bootstrap of this need failed; it waits before the next attempt.", "Look at the bootstrap template of the cluster."},
	{"PARKED", "No domain can hold the gang, and trying again has not helped; it waits for the next probe.", "Add machines to one domain, or make the gang smaller."},
	{"DOMAIN_TOO_SMALL", "No domain could hold the gang even if all its machines were free.", "Make the gang smaller, use larger machines, or a wider topology key."},
	{"NO_MATCH", "No machine in any state matches the requirements.", "Drop a requirement (node selector, affinity), or add such machines."},
	{"DIMENSION_MISSING", "Machines match, but none offers one of the requested resources.", "Add machines with that resource."},
	{"TOO_SMALL", "Machines match, but none is large enough for one Pod of this size.", "Ask for less per Pod, or add larger machines."},
	{"SPREAD_BLOCKED", "Machines are free, but only where the spread constraint forbids them.", "Add machines in the other domains, or allow more skew."},
	{"NODE_NOT_JOINED", "A machine was configured, but its node never joined.", "Look at the bootstrap template and at the network of the nodes."},
	{"PREEMPTION_SHORT", "Victims were found, but they free too little.", "Add machines, or raise the priority."},
	{"STOCK_OUT", "The provider is out of the machines that fit.", "Allow other types, zones or capacity types."},
	{"QUOTA", "The quota for the machines that fit is used up.", "Raise the quota, or allow other types."},
	{"WITHHELD", "The machines that fit are withheld.", "See the marks of the machines; the history of each says what went wrong."},
	{"HELD_BY_OTHERS", "The machines that fit are held by others.", "Add machines, or raise the priority."},
	{"STARTING", "Machines are being configured.", "Nothing is to be done: their nodes join by themselves."},
	{"CREATING", "Machines are being created.", "Nothing is to be done: they are configured as soon as they exist."},
	{"WAITING_FOR_DRAIN", "Machines are on their way once they are drained.", "Nothing is to be done, unless the drain is stuck: the list of drains names what blocks it."},
	{"NODE_NOT_READY", "A node that joined is not Ready now.", "Look at the node; its recovery belongs to the cluster."},
	{"UNPLACED", "Capacity covers the demand, but the scheduler could not place all Pods.", "Look at the events of the pending Pods."},
	{"SPREAD_IGNORED", "The spread constraint is ignored, because the need asks for one domain.", "Drop the spread constraint, or the wish for one domain."},
}

var _ [0]struct{} = [len(detailCodes) - details]struct{}{}

// String returns the name of the detail as the wire spells it, without its prefix.
func (d Detail) String() string { return nameOf(detailCodes[:], int(d)) }

// Sentence says the detail in words, and Remedy what could be done about it.
func (d Detail) Sentence() string { return detailCodes[min(int(d), details-1)].say }

// Remedy says what could be done about the detail, or "".
func (d Detail) Remedy() string { return detailCodes[min(int(d), details-1)].do }

var reasonCodes = [...]code{
	{"", "Satisfied.", ""},
	{"PRIORITY_STARVED", "Matching supply exists, but equal or higher precedence holds it.", ""},
	{"NO_MATCHING_SUPPLY", "No suitable machine is in this shard.", ""},
	{"TOPOLOGY_UNSATISFIABLE", "The topology constraint cannot be met in this shard.", ""},
	{"PREEMPTION_EXHAUSTED", "Victims were found but free too little.", ""},
}

// String returns the name of the reason as the wire spells it, without its prefix.
func (r UnmetReason) String() string { return nameOf(reasonCodes[:], int(r)) }

var causeCodes = [...]code{
	{"", "", ""},
	{"phase1.idle", "An Idle machine was free.", ""},
	{"phase1.speculative", "A slot was free, and nothing Idle was left.", ""},
	{"phase1.handover", "The machine was promised to this need and is Idle now.", ""},
	{"phase2.inversion", "A need of higher priority lacks what this machine gives to one of lower priority.", ""},
	{"phase2.excess", "Nobody claims the machine, and a need of higher priority lacks it.", ""},
	{"phase3.excess", "Nobody claims the machine any more.", ""},
	{"phase3.excess_promised", "Nobody claims the machine any more, and another need waits for it.", ""},
	{"phase3.gang_moved", "The gang that the machine served has chosen another domain.", ""},
	{"phase3.not_joined", "The node of the machine never joined its cluster.", ""},
	{"phase3.release", "The machine has been Idle for longer than its hold.", ""},
	{"move.drained", "The machine moves to another shard, where a need of higher priority and penalty lacks it.", ""},
}

var _ [0]struct{} = [len(causeCodes) - int(causes)]struct{}{}

// String returns the name of the cause, for example "phase2.inversion".
func (c Cause) String() string { return nameOf(causeCodes[:], int(c)) }

// Sentence says the cause in words.
func (c Cause) Sentence() string { return causeCodes[min(int(c), int(causes)-1)].say }

var keepCodes = [...]code{
	{"", "The plan does something with it.", ""},
	{"CLAIMED", "A need claims it.", "It goes when that need shrinks."},
	{"CLAIMED_WITH_SHARES", "A need claims it, and others use parts of it.", "It goes when all of them shrink."},
	{"NOT_HEARD", "Its cluster has not reported since the shard started.", "It is looked at when the cluster's first roll-up arrives: bring its operator back, or retire the cluster if it is gone."},
	{"READINESS_GUARD", "Its node never joined, but too many others did not either, so none is given up.", "Look at the bootstrap template."},
	{"NOT_OWNED", "Another shard owns it.", "That shard decides about it: ask there."},
	{"SURPLUS_MATURES", "Nobody claims it any more; it is left to finish starting.", "Nothing is to be done: once it has started it is released like any other that nobody claims."},
	{"PROMISED", "It is promised to a need.", "It goes elsewhere when that need shrinks."},
	{"PROMISED_UNUSED", "It was promised to a need that no longer wants it.", "Nothing is to be done: once it is there any need may have it, and after its hold it is deleted."},
	{"LEAVING", "It is on its way out.", "Nothing is to be done. While it drains, the list of drains names what blocks it."},
	{"HOLD", "It is Idle and inside its hold.", "It is deleted when the hold ends."},
	{"FIXED", "It is Idle, and machines of its capacity type are never given back.", "Any need that it fits may have it; to be rid of it, take it out of its provider."},
	{"WITHHELD", "It is withheld.", "It is offered again when its mark ends."},
	{"SLOT", "It is a slot and costs nothing.", "It is bought when a need is short of it."},
	{"FAILED", "It failed and waits for repair, retry or forget.", "Once the cause is gone, have its provider asked again; or have it forgotten."},
}

// withheldCodes say what a mark means for the machine that has it.
var withheldCodes = [...]code{
	{"", "", ""},
	{"backoff", "a command on it failed a moment ago", "It is tried again by itself; if that fails too, look at what its provider says."},
	{"stock-out", "its provider has none of its kind left", "It is tried again by itself; ask the provider for more, or allow other types and zones."},
	{"quota", "this shard has used up its slice of the quota", "Raise the quota, or this shard's slice of it."},
	{"forgotten", "a person ordered that it be forgotten", "It is left alone while its provider still lists it; have the provider asked again to use it."},
	{"reserved", "it is reserved for a move to another shard", "It goes over when the move is done; cancel the move to keep it."},
	{"not-joined", "it never became a Node of the cluster that it was made for", "Other clusters may have it at once, that one again when the mark ends. Look at the bootstrap template and at the network of the nodes."},
	{"elsewhere", "it serves a cluster here, and its domain is another shard's", "Nobody here gains by draining it: idle, it is the other shard's. Move the domain back if this shard is to use it."},
}

var _ [0]struct{} = [len(withheldCodes) - inventory.WithheldReasons]struct{}{}

var _ [0]struct{} = [len(keepCodes) - int(KeepReasonShellReserve)]struct{}{}

// String returns the name of the keep reason as the wire spells it, without its prefix.
func (k KeepReason) String() string { return nameOf(keepCodes[:], int(k)) }

// Sentence says the keep reason in words.
func (k KeepReason) Sentence() string {
	return keepCodes[min(int(k), int(KeepReasonShellReserve)-1)].say
}

func nameOf(table []code, i int) string {
	if i < len(table) {
		return table[i].name
	}
	return "UNKNOWN"
}
