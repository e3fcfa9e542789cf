package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// KeepReason says why a machine is left as it is (ENG-19.6). The numbers are those of the wire; the shell adds its own
// above them.
type KeepReason uint8

const (
	NoKeepReason           KeepReason = 0 // there is an action
	KeepClaimed            KeepReason = 1
	KeepClaimedWithShares  KeepReason = 2
	KeepNotHeard           KeepReason = 3
	KeepReadinessGuard     KeepReason = 4
	KeepNotOwned           KeepReason = 5
	KeepSurplusMatures     KeepReason = 6
	KeepPromised           KeepReason = 7
	KeepPromisedUnused     KeepReason = 8
	KeepLeaving            KeepReason = 9
	KeepHold               KeepReason = 10
	KeepFixed              KeepReason = 11
	KeepWithheld           KeepReason = 12
	KeepSlot               KeepReason = 13
	KeepFailed             KeepReason = 14
	KeepReasonShellReserve KeepReason = 15 // the shell's own begin here
)

// Keep is the answer to "why is this machine still here".
type Keep struct {
	Reason     KeepReason
	Action     *Action // set if the plan does something with it; Reason is then NoKeepReason
	Need       Ref     // who claims it or is promised it
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
	k := Keep{Need: Nobody}
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
	block := slices.IndexFunc(marks, func(m inventory.Withheld) bool { return m.Reason.BlocksRelease() })
	hold, elastic := p.Hold.Of(inv.CapacityType(i))
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
	return Claim{}, Nobody, 0
}

func (r *Result) guarded(w *World, i inventory.Index) bool {
	b, _ := r.Block(w.Inventory.Cluster(i))
	if b == nil {
		return false
	}
	_, ok := slices.BinarySearch(b.Protected, i)
	return ok
}
