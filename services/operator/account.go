package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/publish"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/status"
)

// brokenFor is how long the watch of requests must be broken before the status says so (OP-5.3).
const brokenFor = time.Minute

// lastRollup is what the status says of roll-ups.
type lastRollup struct {
	mu sync.Mutex
	status.Rollup
	change uint64 // Outcome.Change of the last accepted one
}

// rollupOutcome hears what became of a roll-up (OP-5.6).
func (p *parts) rollupOutcome(o publish.Outcome) {
	p.teller.Rollup(o.Result, o.Text)
	p.last.mu.Lock()
	was := p.last.Rollup
	now := status.Rollup{Result: o.Result, AcceptedSince: was.AcceptedSince, Rows: o.Rows, TooMuch: o.SoftExceeded,
		Reason: o.Reason, Message: o.Text, Field: o.FieldPath, Held: o.HeldCount, HeldNeeded: o.HeldNeeded}
	if o.Rows == 0 && o.Bytes == 0 {
		now.Rows, now.TooMuch = was.Rows, was.TooMuch // an answer that does not name its roll-up
	}
	switch o.Result {
	case "accepted":
		// A shard may accept each heartbeat anew; what counts is when it first took the demand that is in force.
		now.AcceptedSince = status.Second(o.At)
		if was.Result == "accepted" && was.AcceptedSince != nil && (o.Change == 0 || o.Change == p.last.change) {
			now.AcceptedSince = was.AcceptedSince
		}
		p.last.change = o.Change
	case "unchanged":
		now.Result = "accepted"
	}
	p.last.Rollup = now
	p.last.mu.Unlock()
	if reason, message := rollupEvent(o, now.TooMuch && !was.TooMuch); reason != "" {
		p.events.Note(notes.Note{About: p.subject(), Warning: true, Reason: reason, Message: "the demand of cluster " + p.ClusterID + " " + message})
	}
}

// rollupEvent is what an event says of a roll-up: of one that was not taken, and of the first that is unusually large (OP-5.5).
func rollupEvent(o publish.Outcome, large bool) (reason, message string) {
	why := strings.Join(slices.DeleteFunc([]string{o.Reason, o.FieldPath, o.Text}, func(s string) bool { return s == "" }), ": ")
	switch {
	case o.Result == "held":
		return "RollupHeld", fmt.Sprintf("is held by the shard, %d of %d confirmations; the last accepted one stays in force: %s", o.HeldCount, o.HeldNeeded, why)
	case o.Result == "rejected":
		return "RollupRejected", "is refused by the shard; the last accepted one stays in force: " + why
	case o.Result == "too_large":
		return "RollupTooLarge", "is larger than a roll-up may be and was not sent; the last accepted one stays in force: " + why
	case large:
		return "RollupLarge", fmt.Sprintf("has %d rows in %d bytes, more than %d rows or %d bytes: look for requests that differ where they could be alike",
			o.Rows, o.Bytes, publish.RowsSoft, publish.BytesSoft)
	}
	return "", ""
}

// subject is the ConfigMap that events about the operator itself hang on.
func (p *parts) subject() notes.Subject {
	return notes.Subject{APIVersion: "v1", Kind: "ConfigMap", Namespace: p.Namespace, Name: status.Name}
}

// uidOf finds the uid of what events are about, so that they are shown where people look.
func (p *parts) uidOf(about notes.Subject) types.UID {
	switch about.Kind {
	case "UpcomingNode":
		return p.upcoming.UID(about.Name)
	case "ConfigMap":
		uid, _ := p.statusUID.Load().(types.UID)
		return uid
	}
	return ""
}

func (p *parts) buildStatus() error {
	p.status = status.Writer{Client: p.access.Client, Namespace: p.Namespace, Read: p.account, Log: p.log, Wrote: func(uid types.UID) { p.statusUID.Store(uid) }}
	return nil
}

// account is what the operator says of itself now.
func (p *parts) account() status.Account {
	s := p.session.State()
	p.last.mu.Lock()
	rollup := p.last.Rollup
	p.last.mu.Unlock()
	out := status.Account{
		ClusterID: p.ClusterID, Rollup: rollup, EvictionsStopped: p.stop.on.Load(), Drains: p.drains.List(),
		Session: status.Session{Connected: s.Connected, Since: status.Second(s.Since), ShardAddr: p.ShardAddr, ShardID: s.ShardID,
			Refused: s.Refused, LastError: s.LastError},
		Versions: status.Versions{Operator: telemetry.ReadBuild().Version, Shard: s.ShardVersion},
	}
	p.demand.Read(func(a *aggregate.Aggregate) { out.InvalidRequests = a.Invalid() })
	if at := p.freshness.since(); !at.IsZero() && time.Since(at) >= brokenFor {
		out.WatchBrokenSince = status.Second(at)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if v, err := p.versions.Get(ctx); err == nil {
		out.Versions.Kubernetes = v
	}
	if p.tokens != nil {
		for _, t := range p.tokens.Live() {
			out.Tokens = append(out.Tokens, status.TokenID{ID: t.ID, Machine: t.Machine, Expires: *status.Second(t.Expires.Add(time.Second))})
		}
	}
	return out
}
