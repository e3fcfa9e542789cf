package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/outofservice"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/publish"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/status"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// brokenFor is how long the watch of requests must be broken before the status says so (OP-5.3).
const brokenFor = time.Minute

// lastRollup is what the status says of roll-ups.
type lastRollup struct {
	mu sync.Mutex
	status.Rollup
	change uint64 // Outcome.Change of the last accepted one
}

// rollupOutcome records the result of a roll-up (OP-5.6).
func (p *parts) rollupOutcome(o publish.Outcome) {
	p.needStatus.Rollup(o.Result, o.Text)
	p.last.mu.Lock()
	was := p.last.Rollup
	now := status.Rollup{Result: o.Result, AcceptedSince: was.AcceptedSince, Rows: o.Rows, TooMuch: o.SoftExceeded,
		Reason: o.Reason, Message: o.Text, Field: o.FieldPath, Held: o.HeldCount, HeldNeeded: o.HeldNeeded}
	if o.Rows == 0 && o.Bytes == 0 {
		now.Rows, now.TooMuch = was.Rows, was.TooMuch // an answer that does not name its roll-up
	}
	switch o.Result {
	case "accepted":
		// A shard may accept each heartbeat again; what counts is when it first took the demand that is in force.
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
		p.events.Record(events.Event{Regarding: p.subject(), Warning: true, Reason: reason, Message: "The demand of cluster " + p.ClusterID + " " + message})
	}
}

// rollupEvent describes a roll-up that was not accepted, or the first one above the soft limits (OP-5.5).
func rollupEvent(o publish.Outcome, large bool) (reason, message string) {
	why := strings.Join(slices.DeleteFunc([]string{o.Reason, o.FieldPath, o.Text}, func(s string) bool { return s == "" }), ": ")
	switch {
	case o.Result == "held":
		return "RollupHeld", fmt.Sprintf("is held by the shard after %d of %d confirmations; the last accepted demand stays in force: %s", o.HeldCount, o.HeldNeeded, why)
	case o.Result == "rejected" && o.Reason == "too_wide": // WIRE-3.9
		return "RollupRejected", "is set aside by the shard: " + why
	case o.Result == "rejected":
		return "RollupRejected", "is refused by the shard; the last accepted demand stays in force: " + why
	case o.Result == "too_large":
		return "RollupTooLarge", "exceeds the size limit of a roll-up and was not sent; the last accepted demand stays in force: " + why
	case large:
		return "RollupLarge", fmt.Sprintf("has %d rows in %d bytes; the soft limits are %d rows and %d bytes. Look for requests that differ unnecessarily.",
			o.Rows, o.Bytes, publish.RowsSoft, publish.BytesSoft)
	}
	return "", ""
}

// outOfServiceMax bounds the list in the status: a ConfigMap holds 1 MiB.
const outOfServiceMax = 200

// nodeShapesMax bounds that list.
const nodeShapesMax = 200

// outOfServiceReason explains why a node takes no Pods.
func outOfServiceReason(e outofservice.Entry) (reason, message string) {
	since := e.Since.UTC().Format(time.TimeOnly + " MST")
	switch e.Reason {
	case pb.MachineOutOfService_REASON_CORDONED:
		if e.Detail != "" {
			return upcoming.ReasonCordoned, "Node " + e.Node + " was cordoned (" + e.Detail + "). It does not count as capacity; it is released when its Pods are gone, and its machine is then kept out of use for up to an hour."
		}
		return upcoming.ReasonCordoned, "Node " + e.Node + " was cordoned by someone other than BigFleet. It does not count as capacity; it is released when its Pods are gone."
	case pb.MachineOutOfService_REASON_TAINTED:
		return upcoming.ReasonTainted, "Node " + e.Node + " has taint " + e.Detail + ", which BigFleet did not set. It does not count as capacity; it is released when its Pods are gone."
	}
	if e.Capped {
		return upcoming.ReasonNodeLost, "Node " + e.Node + " has not been Ready since " + since + ". Too many nodes are lost at once, so BigFleet waits for it instead of replacing it."
	}
	return upcoming.ReasonNodeLost, "Node " + e.Node + " has not been Ready since " + since + ". It does not count as capacity and is replaced."
}

// subject is the ConfigMap that events about the operator itself hang on.
func (p *parts) subject() events.Subject {
	return events.Subject{APIVersion: "v1", Kind: "ConfigMap", Namespace: p.Namespace, Name: status.Name}
}

// uidOf finds the uid of an event's subject, which kubectl describe needs to show the event.
func (p *parts) uidOf(about events.Subject) types.UID {
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

// account is the current content of the status ConfigMap.
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
	for _, d := range p.overhead.Differences() {
		if len(out.NodeShapes) < nodeShapesMax {
			out.NodeShapes = append(out.NodeShapes, status.NodeShape{InstanceType: d.InstanceType, Resource: d.Resource, Offered: d.Offered, Found: d.Found, Nodes: d.Nodes})
		}
	}
	for i, e := range p.outOfService.Entries() {
		if i >= outOfServiceMax {
			out.OutOfServiceMore++
			continue
		}
		reason, _ := outOfServiceReason(e)
		out.OutOfService = append(out.OutOfService, status.OutOfService{Node: e.Node, Machine: e.Machine, Reason: reason, Detail: e.Detail,
			Since: *status.Second(e.Since), AboveCap: e.Capped})
	}
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
