package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// receive routes what the operator sends until the stream ends. It never decodes a roll-up itself: a large one must not
// delay the bootstrap answers behind it (SHARD-8.1).
func (h *Handler) receive(ctx context.Context, s *stream, l *live) error {
	for {
		f, err := s.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return errEnded
		case connect.CodeOf(err) == connect.CodeResourceExhausted:
			h.cfg.Observe.FrameOversize()
			return err
		case err != nil:
			return errEnded
		}
		if raw, is := f.rollup(); is {
			h.rollup(ctx, l, raw)
		} else if err = h.sized(f); err == nil {
			aside(func() { err = h.route(ctx, l, f) })
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// frameBytesMax bounds a frame without roll-up or boot data: the largest, UnplacedPods, may have 13 MB of names.
const frameBytesMax = 16 << 20

// sized refuses a frame before it is decoded, which takes many times as much memory.
func (h *Handler) sized(f *Received) error {
	if _, boot := f.only(3); boot || len(f.raw) <= frameBytesMax {
		return nil
	}
	h.cfg.Observe.FrameOversize()
	return rpc.NewError(connect.CodeResourceExhausted, fmt.Sprintf("a frame has %d bytes; at most %d are accepted of one without roll-up or boot data", len(f.raw), frameBytesMax))
}

// errFrame ends the session of a peer that sends what is not a frame.
func errFrame(err error) error {
	return rpc.NewError(connect.CodeInvalidArgument, "a frame is not an OperatorMessage: "+err.Error())
}

// route hands one frame to where it belongs. Unknown and unset payloads are counted and skipped (WIRE-6.7).
func (h *Handler) route(ctx context.Context, l *live, f *Received) error {
	m, err := f.message()
	if err != nil {
		return errFrame(err)
	}
	switch p := m.Payload.(type) {
	case *pb.OperatorMessage_Hello:
		return h.retry(ctx, l, p.Hello)
	case *pb.OperatorMessage_Rollup:
		if raw, err := proto.Marshal(p.Rollup); err == nil {
			h.rollup(ctx, l, raw)
		}
	case *pb.OperatorMessage_BootstrapResponse:
		r := p.BootstrapResponse
		r.Error = clip(r.Error)
		r.UserData = r.UserData[:min(len(r.UserData), h.cfg.BlobBytesMax+1)] // enough to see that it is too large
		if h.passes(l, "bootstrap", r) {
			h.bootstrap(ctx, l, r)
		}
	case *pb.OperatorMessage_ReclaimAck:
		r := p.ReclaimAck
		for _, f := range r.GetFailures() {
			if f != nil {
				f.Message = clip(f.Message)
			}
		}
		if h.passes(l, "reclaim_ack", r) {
			h.reclaimAck(ctx, l, r)
		}
	case *pb.OperatorMessage_NodeReport:
		r := p.NodeReport
		r.Reason = clip(r.Reason)
		if h.passes(l, "node_report", r) {
			l.fast.Push(ctx, core.NodeReported{Cluster: l.cluster, Session: l.number, Machine: r.MachineId, Node: r.NodeName,
				Present: r.Present, Ready: r.Present && r.Ready, LastOfFullSet: r.LastOfFullSet, Contents: contents(r.Contents)})
		}
	case *pb.OperatorMessage_DrainReport:
		r := p.DrainReport
		r.Reason = clip(r.Reason)
		if h.passes(l, "drain_report", r) {
			l.fast.Push(ctx, core.DrainReported{Cluster: l.cluster, Session: l.number, Instruction: r.InstructionId, State: int32(r.State),
				PodsLeft: int64(r.PodsTotal - r.PodsEvicted), Blocking: r.BlockingBudgets, Reason: r.Reason})
		}
	case *pb.OperatorMessage_UnplacedPods:
		if h.passes(l, "unplaced_pods", p.UnplacedPods) {
			l.fast.Push(ctx, unplaced(l, p.UnplacedPods))
		}
	default:
		h.cfg.Observe.StrayFrame("unknown")
	}
	return nil
}

// check runs the generated rules on a payload. A field without one has the bound of all requests: the server's own check sees no frames of sessions, which
// are not decoded yet when it runs.
func (h *Handler) check(m proto.Message) error {
	if err := rpc.CheckBounds(m); err != nil {
		return err
	}
	return h.cfg.Gate.Check(m)
}

// clip cuts a text for people, so that the frame with it is heard.
func clip(s string) string {
	const most = 1024
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// passes checks a payload that needs no answer; one that breaks the rules is counted and skipped.
func (h *Handler) passes(l *live, kind string, m proto.Message) bool {
	if err := h.check(m); err != nil {
		h.cfg.Observe.StrayFrame("invalid_" + kind)
		h.cfg.Log.Warn("a frame was skipped", "cluster", l.cluster, "kind", kind, "err", errorText(err))
		return false
	}
	return true
}

// retry answers a second Hello (SHARD-7.5).
func (h *Handler) retry(ctx context.Context, l *live, hello *pb.Hello) error {
	if hello.GetClusterId() != l.cluster {
		return rpc.NewError(connect.CodeInvalidArgument, "a session cannot change its cluster; open another stream")
	}
	if err := h.checkHello(hello); err != nil {
		return err
	}
	h.open(ctx, l, hello)
	return nil
}

// fullRowsMax is how many rows of a report may say which domains are full; the lists of further ones are dropped (WIRE-6.26). Each is looked through for
// each domain.
const fullRowsMax = 100

func unplaced(l *live, m *pb.UnplacedPods) core.UnplacedReported {
	e := core.UnplacedReported{Cluster: l.cluster, Session: l.number}
	full := 0
	for _, r := range m.Rows {
		row := core.UnplacedRow{RowID: r.RowId, Pods: int64(r.Pods), Since: r.OldestSinceUnixNanos}
		if len(r.FullDomains) > 0 && full < fullRowsMax {
			row.Full = r.FullDomains
			full++
		}
		e.Rows = append(e.Rows, row)
	}
	slices.SortFunc(e.Rows, func(a, b core.UnplacedRow) int { return strings.Compare(a.RowID, b.RowID) })
	if e.StatesUnbound = m.UnboundStated; e.StatesUnbound {
		e.Unbound = slices.Sorted(slices.Values(m.UnboundRowIds))
	}
	return e
}

// blobTTLMaxSeconds is 100 years: more than any credential lives, and a sum of times still fits.
const blobTTLMaxSeconds = 100 * 365 * 24 * 3600

// bootstrap keeps the secret bytes here and gives the core what it may know of them (SHARD-4.6).
func (h *Handler) bootstrap(ctx context.Context, l *live, r *pb.BootstrapBlobResponse) {
	e := core.BootstrapAnswered{Request: r.RequestId, Cluster: l.cluster, Session: l.number, Error: r.Error, Retryable: r.Retryable,
		Length: int64(len(r.UserData))}
	if r.TtlSeconds > 0 {
		e.TTL = min(r.TtlSeconds, blobTTLMaxSeconds) * int64(time.Second)
	}
	switch {
	case e.Error != "":
	case len(r.UserData) > h.cfg.BlobBytesMax:
		e.Error = "the bootstrap data is larger than the shard accepts"
	default:
		sum := sha256.Sum256(r.UserData)
		e.Digest = hex.EncodeToString(sum[:])
		if !h.cfg.Blobs.put(r.RequestId, l.cluster, r.UserData) {
			h.cfg.Observe.StrayFrame("bootstrap")
			return
		}
	}
	l.fast.Push(ctx, e)
}

func (h *Handler) reclaimAck(ctx context.Context, l *live, r *pb.ReclaimAck) {
	e := core.ReclaimAcked{Instruction: r.InstructionId, Cluster: l.cluster, Session: l.number, NodesStarted: int64(r.NodesStarted)}
	for _, f := range r.Failures {
		e.Failures = append(e.Failures, core.NodeFailure{Node: f.GetNode(), Reason: f.GetReason().String(), Message: f.GetMessage()})
	}
	l.fast.Push(ctx, e)
}

// rollup puts a roll-up into the session's one-place slot; a newer one replaces a waiting one, since a full replacement
// makes it worthless (SHARD-8.2).
func (h *Handler) rollup(ctx context.Context, l *live, raw []byte) {
	l.mu.Lock()
	l.pending = &rawRollup{bytes.Clone(raw), h.arrival.Add(1), h.cfg.Loop.Now().Mono}
	start := !l.working
	l.working = true
	l.mu.Unlock()
	if start {
		go h.work(ctx, l)
	}
}

// work gates the session's roll-ups, one at a time (SHARD-8.3).
func (h *Handler) work(ctx context.Context, l *live) {
	for {
		raw := l.take()
		if raw == nil {
			return
		}
		e, err := h.gate(ctx, l, raw)
		if err != nil {
			l.cancel(err)
			l.drop()
			return
		}
		if e.Reject != nil {
			h.cfg.Log.Error("roll-up rejected", "cluster", l.cluster, "reason", e.Reject.Reason, "need", e.Reject.NeedIndex,
				"field", e.Reject.FieldPath, "err", e.Reject.Message)
		}
		if h.cfg.Mark != nil {
			h.cfg.Mark(&e)
		}
		l.rollups.Push(ctx, e)
	}
}

// gate turns the bytes of a roll-up into core form, within the shared pool. Large ones have a pool of their own, so that they do
// not hold up the small ones of all other clusters.
func (h *Handler) gate(ctx context.Context, l *live, raw *rawRollup) (core.RollupArrived, error) {
	if raw.large() {
		if err := h.large.enter(ctx, l.cluster, len(raw.bytes)); err != nil {
			return core.RollupArrived{}, err
		}
		defer h.large.leave()
	} else {
		select {
		case h.workers <- struct{}{}:
		case <-ctx.Done():
			return core.RollupArrived{}, context.Cause(ctx)
		}
		defer func() { <-h.workers }()
	}
	raw = l.newest(raw)
	if e, is := h.cfg.Gate.Oversize(raw.bytes, l.cluster); is {
		e.Session, e.Arrival, e.Received = l.number, raw.arrived, raw.received
		return e, nil
	}
	m := &pb.ClusterCapacityNeeds{}
	if err := proto.Unmarshal(raw.bytes, m); err != nil {
		return core.RollupArrived{}, errFrame(err)
	}
	lowered := h.cfg.Ceilings.apply(m, l.cluster)
	e := h.cfg.Gate.Rollup(m, l.cluster, len(raw.bytes), time.Now())
	e.Warnings = append(lowered, e.Warnings...)
	e.Session, e.Arrival, e.Received = l.number, raw.arrived, raw.received
	return e, nil
}

// take empties the slot, or ends the work when it is empty.
func (l *live) take() *rawRollup {
	l.mu.Lock()
	defer l.mu.Unlock()
	raw := l.pending
	l.pending, l.working = nil, raw != nil
	return raw
}

// newest takes what came in while a roll-up waited for a worker, if the same workers may have it.
func (l *live) newest(raw *rawRollup) *rawRollup {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending != nil && l.pending.large() == raw.large() {
		raw, l.pending = l.pending, nil
	}
	return raw
}

func (l *live) drop() {
	l.mu.Lock()
	l.pending, l.working = nil, false
	l.mu.Unlock()
}

// contents reads what a node holds. Amounts that cannot be are read as the nearest that can.
func contents(c *pb.NodeContents) *core.NodeContents {
	if c == nil {
		return nil
	}
	pods := max(0, int64(c.Pods))
	return &core.NodeContents{Pods: pods, Protected: min(max(0, int64(c.PodsProtected)), pods), EmptySince: c.EmptySinceUnixNanos,
		CostCents: max(0, c.DisruptionCostCents), Labels: nodeLabels(c.Labels)}
}

// nodeLabelsMax is how many labels of a node are kept: a cluster selects by few that only its nodes have.
const nodeLabelsMax = 32

func nodeLabels(m map[string]string) (out []inventory.Label) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if len(out) < nodeLabelsMax {
			out = append(out, inventory.Label{Key: k, Value: m[k]})
		}
	}
	return out
}
