package operator

import (
	"context"
	"sync"
	"time"

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
	refused := o.Result == "held" || o.Result == "rejected" || o.Result == "too_large"
	if refused || now.TooMuch && !was.TooMuch {
		p.events.Note(notes.Note{About: p.subject(), Warning: true, Reason: "Rollup" + map[string]string{
			"held": "Held", "rejected": "Rejected", "too_large": "TooLarge",
		}[o.Result], Message: "the demand of cluster " + p.ClusterID + ": " + o.Result + " " + o.Reason + " " + o.FieldPath + " " + o.Text})
	}
}

// subject is the ConfigMap that events about the operator itself hang on.
func (p *parts) subject() notes.Subject {
	return notes.Subject{APIVersion: "v1", Kind: "ConfigMap", Namespace: p.Namespace, Name: status.Name}
}

func (p *parts) buildStatus() error {
	p.status = status.Writer{Client: p.access.Client, Namespace: p.Namespace, Read: p.account, Log: p.log}
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
