package explain

// Reject says why a machine is not one that a Need has or gets: the first reason that applies, in the order of the funnel
// (ENG-19.8).
type Reject uint8

const (
	Accepted          Reject = iota // counted for the Need, used by a share of it, or given to it by this plan
	RejectRequirement               // a label does not answer a requirement
	RejectTaint                     // a taint keeps the Need's Pods away
	RejectTooSmall                  // one unit does not fit
	RejectForeign                   // another shard owns it, and it is not in use in another cluster
	RejectFailed                    // it failed, or is stuck
	RejectLeaving                   // it is being released, or being made for no need
	RejectNotJoined                 // Configured, but its Node never joined
	RejectServes                    // another Need claims it
	RejectPromised                  // it is on its way to another Need
	RejectElsewhere                 // bound in another cluster, where no need of this shard claims it
	RejectWithheld                  // it carries a mark
	RejectDomain                    // outside the domain that the gang chose
	RejectUseless                   // it offers nothing of what is asked for
	RejectHeld                      // the Need takes nothing for now
	RejectSpread                    // one more there would break the skew
	RejectNotNeeded                 // it could be had, and others were chosen

	rejects = 17 // length of an array indexed by Reject
)

// The first Reject of each step of the funnel.
const (
	firstOfFree    = RejectForeign
	firstOfOffered = RejectWithheld
	FirstOfClaimed = RejectHeld
)

var rejectCodes = [...]code{
	{"ACCEPTED", "It counts for the need.", ""},
	{"REQUIREMENT", "Its labels do not match a requirement.", "Remove the requirement, or label the machine."},
	{"TAINT", "It has a taint that the need does not tolerate.", "Tolerate the taint, or remove it."},
	{"TOO_SMALL", "One Pod of the need does not fit.", "Request less for each Pod."},
	{"NOT_OWNED", "Another shard owns it.", ""},
	{"FAILED", "It failed.", "Repair it, retry it or forget it."},
	{"LEAVING", "It is being released, or is starting without a need.", ""},
	{"NOT_JOINED", "It is configured, but its Node never joined.", "Check the bootstrap template and the network of the Nodes."},
	{"SERVES_ANOTHER", "Another need uses it.", ""},
	{"PROMISED", "It is on its way to another need.", ""},
	{"ELSEWHERE", "It is in use in another cluster.", ""},
	{"WITHHELD", "It is withheld.", "Check its marks."},
	{"OTHER_DOMAIN", "It is outside the domain that the need has chosen.", ""},
	{"USELESS", "It offers none of the requested resources.", ""},
	{"HELD", "The need is blocked for now.", ""},
	{"SPREAD", "One more in that domain would violate the spread constraint.", "Increase maxSkew."},
	{"NOT_NEEDED", "It is available; other machines were chosen.", ""},
}

var _ [0]struct{} = [len(rejectCodes) - rejects]struct{}{}

// String returns the name of the reason, Sentence says it in words, and Remedy what could be done about it, or "".
func (r Reject) String() string   { return nameOf(rejectCodes[:], int(r)) }
func (r Reject) Sentence() string { return rejectCodes[min(int(r), rejects-1)].say }
func (r Reject) Remedy() string   { return rejectCodes[min(int(r), rejects-1)].do }

// Standing says why a holder was not displaced for a Need that wanted its machines.
type Standing uint8

const (
	StandsHigher    Standing = iota // of higher priority
	StandsEqual                     // of equal priority
	StandsUsed                      // its attribution, or somebody with a share on it, is of equal or higher priority
	StandsInCluster                 // in the Need's own cluster: kube-scheduler moves Pods there by priority
	StandsForeign                   // machines of another shard
	StandsUnheard                   // the demand of its cluster is not confirmed since the shard started
	StandsElsewhere                 // once Idle the machines are another shard's
	StandsRefused                   // its machines never joined the Need's cluster
	StandsComing                    // still being configured
	StandsWhole                     // the Need is a gang, and all that could be freed would not hold it
	StandsUnasked                   // the Need is held, so it preempts nothing
	StandsUnneeded                  // gentler or better means were enough

	standings = 12
)

var standingCodes = [...]code{
	{"HIGHER_PRIORITY", "It has a higher priority.", "Raise the priority, or add machines."},
	{"EQUAL_PRIORITY", "It has the same priority; only a strictly higher priority preempts.", "Raise the priority, or add machines."},
	{"IN_USE", "It runs Pods of equal or higher priority.", "Raise the priority, or add machines."},
	{"OWN_CLUSTER", "It is in the same cluster, where the scheduler preempts.", ""},
	{"NOT_OWNED", "Another shard owns the machines.", ""},
	{"NOT_HEARD", "The shard has not confirmed the demand of its cluster since it started, so nothing is preempted there.", "Bring its operator back."},
	{"DOMAIN_MOVED", "Once released, the machines belong to another shard.", "Assign their domain to this shard."},
	{"NEVER_JOINED", "Their Nodes never joined the need's cluster, so they are withheld from it for a while.", "Check the bootstrap template and the network of the Nodes."},
	{"STARTING", "The machines are still starting.", ""},
	{"ALL_OR_NOTHING", "Even the capacity of all machines that could be freed is too small for the whole gang.", "Make the gang smaller, or add machines."},
	{"HELD", "The need is blocked and preempts nothing at the moment.", ""},
	{"NOT_NEEDED", "Other machines were sufficient.", ""},
}

var _ [0]struct{} = [len(standingCodes) - standings]struct{}{}

// String returns the name of the reason, Sentence says it in words, and Remedy what could be done about it, or "".
func (s Standing) String() string   { return nameOf(standingCodes[:], int(s)) }
func (s Standing) Sentence() string { return standingCodes[min(int(s), standings-1)].say }
func (s Standing) Remedy() string   { return standingCodes[min(int(s), standings-1)].do }

// code is the text of one reason: its name on paper, a sentence for people, and what could be done.
type code struct{ name, say, do string }

func nameOf(table []code, i int) string {
	if i < len(table) {
		return table[i].name
	}
	return "UNKNOWN"
}
