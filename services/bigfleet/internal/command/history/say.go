package history

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// Sentence says what a record is about: what was done and why, for which need, and which need it was taken from. Names in it are
// ones that other verbs take (OPS-4.18).
func Sentence(r *pb.DecisionRecord) string {
	said := ""
	switch r.GetType() {
	case pb.RecordType_RECORD_TYPE_STARTED:
		if tookNoPods(r) {
			return empty(r, r.GetDetail())
		}
		said = Why(r)
	case pb.RecordType_RECORD_TYPE_SUPPRESSED:
		said = "Not done: actions are paused. " + Planned(r)
	case pb.RecordType_RECORD_TYPE_DRY_RUN:
		said = "Not done: the shard is in dry run. " + Planned(r)
	case pb.RecordType_RECORD_TYPE_ENDED:
		said = ended(r)
	case pb.RecordType_RECORD_TYPE_UNEXPECTED_EDGE:
		return fmt.Sprintf("It went from %s to %s, and no command of this shard caused that.",
			output.Enum("MACHINE_STATE_", r.GetFromState().String()), output.Enum("MACHINE_STATE_", r.GetToState().String()))
	}
	if d := r.GetDetail(); d != "" && said != "" {
		said += " " + strings.TrimSuffix(d, ".") + "."
	} else if d != "" {
		said = d
	}
	if who := r.GetActor(); who != "" {
		said = strings.TrimSuffix(said, ".") + ", by " + who
	}
	return said
}

// noPods begins the detail of a release whose reason is the Node: it was cordoned, tainted or lost (SHARD-18.9).
const noPods = "Its Node took no Pods: "

// tookNoPods reports whether a machine goes because its Node took no Pods, and not because no need wants it.
func tookNoPods(r *pb.DecisionRecord) bool {
	return (r.GetCause() == "phase3.excess" || r.GetCause() == drained) && strings.HasPrefix(r.GetDetail(), noPods)
}

// drained is the cause of a release that a person asked for: the machine stays out for a while (SHARD-18.11).
const drained = "person.drained"

// empty says why such a machine goes.
func empty(r *pb.DecisionRecord, detail string) string {
	said := strings.TrimSuffix(detail, ".") + ". No Pod was left on it, so it is released."
	if r.GetCause() == drained {
		said += " No cluster gets it for an hour."
	}
	return said
}

// Planned says why an action would be started.
func Planned(r *pb.DecisionRecord) string {
	if r.GetCause() == "phase1.speculative" {
		return "It would be bought for " + needOf(r) + at(r) + "."
	}
	return Why(r)
}

// causes are the words of the causes of actions (ENG-19.9), as a column has room for; Why says each in a sentence.
var causes = map[string]string{
	"phase1.idle": "idle machine fits", "phase1.speculative": "bought", "phase1.handover": "was reserved", "phase2.inversion": "outranked",
	"phase2.excess": "unused, required elsewhere", "phase3.excess": "unused", "phase3.excess_promised": "unused, promised", "phase3.gang_moved": "gang moved",
	"phase3.not_joined": "never joined", "phase3.release": "idle for too long", "move.drained": "moves to a shard", drained: "drained by a person",
}

// Cause is the word of a record's cause: that of a newer shard as it is.
func Cause(r *pb.DecisionRecord) string {
	if tookNoPods(r) && r.GetCause() != drained {
		return "took no Pods"
	}
	if word, known := causes[r.GetCause()]; known {
		return word
	}
	return r.GetCause()
}

// Outcome is how something ended, in words.
func Outcome(r *pb.DecisionRecord) string { return strings.ReplaceAll(r.GetOutcome(), "_", " ") }

// Why says why an action was decided.
func Why(r *pb.DecisionRecord) string {
	of, winner := needOf(r), winnerOf(r)
	switch cause := r.GetCause(); cause {
	case "":
		return ""
	case "phase1.idle":
		return "An idle machine fits " + of + "."
	case "phase1.speculative":
		return "Bought for " + of + at(r) + "."
	case "phase1.handover":
		return "It was reserved for " + of + " and is idle now."
	case "phase2.inversion":
		return fmt.Sprintf("%s outranks %s and takes its machine.%s", capital(winner), of, score(r))
	case "phase2.excess":
		return fmt.Sprintf("No need of cluster %s uses it, and %s requires it.", r.GetClusterId(), winner)
	case "phase3.excess":
		return "No need uses it any more" + last(r) + "."
	case "phase3.excess_promised":
		return "No need uses it any more" + last(r) + ", and " + winner + " waits for it."
	case "phase3.gang_moved":
		return "The gang that used it has moved to another domain" + last(r) + "."
	case "phase3.not_joined":
		return "Its Node never joined cluster " + r.GetClusterId() + "."
	case "phase3.release":
		return "It was idle for longer than its hold time, so it is returned to its provider."
	case drained:
		return "A person drained its Node."
	case "move.drained":
		return "It moves to another shard, where a need of higher priority and penalty requires it."
	default:
		return "Cause " + cause + "."
	}
}

// outcomes say how an action ended that did not succeed.
var outcomes = map[string]string{
	"stale_state": "the machine had changed meanwhile", "no_session": "its cluster was not connected", "session_lost": "its cluster's connection was lost",
	"blob_error": "the cluster could not render the boot data", "blob_timeout": "the cluster did not send the boot data in time",
	"blob_expired": "the boot data expired before it was used", "provider_not_touched": "the provider was not reached, and nothing was changed",
	"provider_unknown": "the provider did not answer, and its state was read again", "provider_refused": "the provider refused it",
	"provider_failed": "the provider failed", "fenced": "the provider answers a newer process of this shard", "cancelled": "it was cancelled",
}

func ended(r *pb.DecisionRecord) string {
	if r.GetOutcome() != "success" {
		if why, known := outcomes[r.GetOutcome()]; known {
			return "It failed: " + why + "."
		}
		return "Ended with " + r.GetOutcome() + "."
	}
	switch r.GetKind() {
	case pb.ActionKind_ACTION_KIND_PROVISION:
		return "Its host is ready to be configured."
	case pb.ActionKind_ACTION_KIND_BOOTSTRAP:
		return "It is a Node of cluster " + r.GetClusterId() + " now."
	case pb.ActionKind_ACTION_KIND_PREEMPT, pb.ActionKind_ACTION_KIND_RECLAIM:
		return "It is drained and has left cluster " + r.GetClusterId() + "."
	case pb.ActionKind_ACTION_KIND_DELETE:
		return "Its host is returned to its provider."
	}
	return "Done."
}

// needOf names the need that an action serves or harms.
func needOf(r *pb.DecisionRecord) string {
	name := needName(r.GetClusterId(), r.GetRowId(), r.GetProfileFingerprint(), r.GetGroup())
	if name == "" {
		return "cluster " + r.GetClusterId()
	}
	return fmt.Sprintf("%s (priority %d)", name, r.GetPriority())
}

// winnerOf names the need that takes the machine.
func winnerOf(r *pb.DecisionRecord) string {
	name := needName(r.GetPreemptorClusterId(), r.GetPreemptorRowId(), r.GetPreemptorFingerprint(), "")
	switch {
	case name == "" && r.GetPreemptorClusterId() == "":
		return "another need"
	case name == "":
		return "a need of cluster " + r.GetPreemptorClusterId()
	case r.GetPreemptorPriority() == 0: // of a voluntary drain it is not recorded
		return name
	}
	return fmt.Sprintf("%s (priority %d)", name, r.GetPreemptorPriority())
}

func needName(cluster, row, fingerprint, group string) string {
	switch {
	case cluster == "" || row == "" && fingerprint == "":
		return ""
	case row != "":
		return "need/" + cluster + "/" + row
	case group != "":
		return "need/" + cluster + "/" + fingerprint + "," + group
	}
	return "need/" + cluster + "/" + fingerprint
}

// last is the need that used a machine which no need uses any more.
func last(r *pb.DecisionRecord) string {
	if name := needName(r.GetClusterId(), r.GetRowId(), r.GetProfileFingerprint(), r.GetGroup()); name != "" {
		return "; it was " + name + " that used it"
	}
	return ""
}

func at(r *pb.DecisionRecord) string {
	if r.GetPricePerHour() == 0 {
		return ""
	}
	said := " at " + output.Dollars(r.GetPricePerHour())
	if cost := output.Dollars(r.GetEffectiveCost()); cost != output.Dollars(r.GetPricePerHour()) {
		said += ", " + cost + " with its expected interruptions"
	}
	return said
}

// score words the terms that chose a victim (ENG-15.9).
func score(r *pb.DecisionRecord) string {
	if r.GetVictimScore() == 0 {
		return grace(r)
	}
	var terms []string
	for _, name := range []string{"priority", "drain", "interruption", "reclamation"} {
		if v := r.GetScoreTerms()[name]; v != 0 {
			terms = append(terms, name+" "+points(v))
		}
	}
	return fmt.Sprintf(" It was chosen by its victim score of %s (%s).", points(r.GetVictimScore()), strings.Join(terms, " + ")) + grace(r)
}

// points writes a score with at most two decimals.
func points(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

func grace(r *pb.DecisionRecord) string {
	if s := r.GetGracePeriodSeconds(); s > 0 {
		return " Its Pods have " + output.Span(time.Duration(s)*time.Second) + " to leave."
	}
	return ""
}

func capital(s string) string {
	if strings.HasPrefix(s, "need/") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
