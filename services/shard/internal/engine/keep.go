package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// KeepReason says why a machine is left as it is (ENG-19.6). The numbers are those of the wire; the shell has reasons of its own, 15 to 23.
type KeepReason uint8

const (
	NoKeepReason          KeepReason = 0 // there is an action
	KeepClaimed           KeepReason = 1
	KeepClaimedWithShares KeepReason = 2
	KeepNotHeard          KeepReason = 3
	KeepReadinessGuard    KeepReason = 4
	KeepNotOwned          KeepReason = 5
	KeepSurplusMatures    KeepReason = 6
	KeepPromised          KeepReason = 7
	KeepPromisedUnused    KeepReason = 8
	KeepLeaving           KeepReason = 9
	KeepHold              KeepReason = 10
	KeepFixed             KeepReason = 11
	KeepWithheld          KeepReason = 12
	KeepSlot              KeepReason = 13
	KeepFailed            KeepReason = 14
)

// Keep is the answer to "why is this machine still here".
type Keep struct {
	Reason     KeepReason
	Action     *Action // set if the plan does something with it; Reason is then NoKeepReason
	Need       Ref     // the Need that claims it or is promised it
	Recipients int     // Needs that have shares on it
	Until      int64   // end of its hold or of its mark; 0 if open
	Mark       inventory.WithheldReason
}

// Keep answers for one machine from a result of the present world. It is computed when asked (ENG-19.7).
func (r *Result) Keep(w *World, p *Policy, i inventory.Index) Keep {
	p = p.OrDefault()
	for a := range r.Actions {
		if r.Actions[a].Machine == i {
			return Keep{Action: &r.Actions[a], Need: r.Actions[a].Need}
		}
	}
	inv := w.Inventory
	k := Keep{Need: NoNeed}
	claim, ref, receivers := r.claimOf(w, i)
	k.Need, k.Recipients = ref, receivers
	claimed := !ref.None()
	switch inv.Seen(i) {
	case inventory.Configured, inventory.Configuring:
		switch {
		case claimed && r.guarded(w, i):
			k.Reason = KeepReadinessGuard
		case claimed && receivers > 0:
			k.Reason = KeepClaimedWithShares
		case claimed:
			k.Reason = KeepClaimed
		case inv.Foreign(i):
			k.Reason = KeepNotOwned
		case inv.Seen(i) == inventory.Configuring:
			k.Reason = KeepSurplusMatures
		default:
			k.Reason = KeepNotHeard
		}
	case inventory.Draining:
		k.Reason = KeepLeaving
		if claimed {
			k.Reason = KeepPromised
		}
	case inventory.Creating:
		k.Reason = KeepPromisedUnused
		if claimed && claim.Kind != ClaimKept {
			k.Reason = KeepPromised
		}
	case inventory.Idle:
		r.keepIdle(w, p, i, &k)
	case inventory.Speculative:
		k.Reason = KeepSlot
		if m := inv.Withheld(i); len(m) > 0 {
			k.Reason, k.Until, k.Mark = KeepWithheld, m[0].Until, m[0].Reason
		}
	case inventory.Deleting:
		k.Reason = KeepLeaving
	default:
		k.Reason = KeepFailed
	}
	return k
}

func (r *Result) keepIdle(w *World, p *Policy, i inventory.Index, k *Keep) {
	inv := w.Inventory
	_, promised := inv.Promise(i)
	marks := inv.Withheld(i)
	block := slices.IndexFunc(marks, func(m inventory.Withheld) bool {
		return m.Reason.BlocksRelease() || m.Reason == inventory.WithheldDrained
	})
	hold, elastic := p.Hold.Of(inv.CapacityType(i), inv.Price(i))
	switch {
	case inv.Foreign(i):
		k.Reason = KeepNotOwned
	case promised || !k.Need.None():
		k.Reason = KeepPromised
	case block >= 0:
		k.Reason, k.Until, k.Mark = KeepWithheld, marks[block].Until, marks[block].Reason
	case elastic:
		k.Reason, k.Until = KeepHold, inv.Since(i)+hold
	default:
		k.Reason = KeepFixed
	}
}

// claimOf finds the claim on a machine and how many Needs share it.
func (r *Result) claimOf(w *World, i inventory.Index) (Claim, Ref, int) {
	clusters := []string{w.Inventory.Cluster(i)}
	if p, ok := w.Inventory.Promise(i); ok {
		clusters = append(clusters, p.Cluster)
	}
	for _, pr := range r.Promised {
		if pr.Machine == i {
			clusters = append(clusters, pr.To.Cluster)
		}
	}
	for _, cluster := range clusters {
		c, ok := r.Claim(cluster, i)
		if !ok {
			continue
		}
		b, at := r.Block(cluster)
		n := 0
		for _, s := range b.Shares {
			if s.Machine == i {
				n++
			}
		}
		return c, Ref{at, c.Row}, n
	}
	return Claim{}, NoNeed, 0
}

func (r *Result) guarded(w *World, i inventory.Index) bool {
	b, _ := r.Block(w.Inventory.Cluster(i))
	if b == nil {
		return false
	}
	_, ok := slices.BinarySearch(b.Protected, i)
	return ok
}

// keepCodes says each reason, and what would have to change.
var keepCodes = [...]code{
	NoKeepReason:          {"", "The current plan acts on it.", ""},
	KeepClaimed:           {"CLAIMED", "In use by a need.", "Released when that need requires less."},
	KeepClaimedWithShares: {"CLAIMED_WITH_SHARES", "In use by several needs.", "Released when all of them require less."},
	KeepNotHeard:          {"NOT_HEARD", "The shard has not confirmed the demand of its cluster since it started.", "Evaluated when the cluster's first roll-up is in force. Bring its operator back, or retire the cluster if it is gone."},
	KeepReadinessGuard:    {"READINESS_GUARD", "Its Node never joined. Too many other Nodes did not join either, so none is released.", "Check the bootstrap template."},
	KeepNotOwned:          {"NOT_OWNED", "Another shard owns it.", "The owning shard decides about it."},
	KeepSurplusMatures:    {"SURPLUS_MATURES", "No need uses it any more. It finishes starting first.", "No action is needed: it is released after it has started."},
	KeepPromised:          {"PROMISED", "It is reserved for a need.", "Available to other needs when that need requires less."},
	KeepPromisedUnused:    {"PROMISED_UNUSED", "It was reserved for a need that no longer requires it.", "No action is needed: once it is ready, any need may use it. It is deleted after its hold time."},
	KeepLeaving:           {"LEAVING", "It is being released.", "No action is needed. During a drain, `bigfleet get drains` names what blocks it."},
	KeepHold:              {"HOLD", "It is Idle and within its hold time, which is shorter for a dearer machine.", "Deleted when the hold time ends."},
	KeepFixed:             {"FIXED", "It is Idle. Machines of its capacity type are never released.", "Any need that fits may use it. To release it, remove it at its provider."},
	KeepWithheld:          {"WITHHELD", "It is withheld.", "Offered again when the mark expires."},
	KeepSlot:              {"SLOT", "It is available to buy and costs nothing.", "Bought when a need requires it."},
	KeepFailed:            {"FAILED", "It has failed. It must be repaired, retried or forgotten.", "When the cause is fixed, run `bigfleet machines retry ID`; or `bigfleet machines forget ID`."},
}

// String returns the name of the keep reason as the wire spells it, without its prefix.
func (k KeepReason) String() string { return nameOf(keepCodes[:], int(k)) }

// Sentence says the keep reason in words.
func (k KeepReason) Sentence() string { return codeOf(keepCodes[:], int(k)).say }

// Change says what would have to change for a machine that is kept to go, or "".
func (k KeepReason) Change() string { return codeOf(keepCodes[:], int(k)).do }
