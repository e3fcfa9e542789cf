package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/server"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// admin is the extension service ProviderAdmin (PROV-22). The gate has judged the caller already.
type admin struct{ p *Provider }

func (a admin) GetProvider(context.Context, *connect.Request[bigfleetv1alpha1.GetProviderRequest]) (*connect.Response[bigfleetv1alpha1.GetProviderResponse], error) {
	p := a.p
	if p.phase.Load() == starting {
		return nil, server.Error(connect.CodeUnavailable, a.p.unread().Error(), retryHint(time.Second))
	}
	out := &bigfleetv1alpha1.GetProviderResponse{
		Name: p.name, Version: p.set.version, Capabilities: p.capabilities(), ReadinessMode: p.set.readiness.mode,
		StoreId: p.storeID(), Mutations: bigfleetv1alpha1.MutationMode_MUTATION_MODE_RUNNING,
		MaxBootstrapBlobBytes: int64(p.set.blobBytes), MaxMetadataBytes: MetadataBytesMax, MaxConcurrentMutations: int32(p.set.transitions),
		Machines: int32(p.inventory.Machines()), StartedAtUnixNanos: p.started.UnixNano(),
	}
	if p.paused.Load() {
		out.Mutations = bigfleetv1alpha1.MutationMode_MUTATION_MODE_PAUSED
	}
	zones, classes := map[string]bool{}, map[lifecycle.CapacityType]bool{}
	for row := range p.inventory.All() {
		at := row.Record.Shape.Attributes()
		zones[at.Zone], classes[at.CapacityType] = true, true
	}
	if out.Locations = slices.Clone(p.set.locations); len(out.Locations) == 0 {
		out.Locations = sortedSet(zones)
	}
	if p.rules.DeleteSupported {
		out.Deletable = sortedSet(classes)
	}
	for _, k := range lifecycle.Kinds() {
		out.Timings = append(out.Timings, &bigfleetv1alpha1.TransitionTiming{
			Rpc: k.String(), TimeoutSeconds: int64((p.set.timeouts.limit(k, 0) + time.Second - 1) / time.Second),
			TypicalSeconds: p.metrics.typical(k),
		})
	}
	return connect.NewResponse(out), nil
}

// capabilities lists the tokens of WIRE-2.8 and the optional interfaces that the backend has (PROV-15.5).
func (p *Provider) capabilities() []string {
	out := []string{"claim-epoch", "cursor", "paging", "tombstones"}
	for _, c := range []struct {
		name string
		has  bool
	}{
		{"deleter", is[Deleter](p.backend)}, {"readier", is[Readier](p.backend)}, {"pricer", is[Pricer](p.backend)},
		{"admitter", is[Admitter](p.backend)}, {"notifier", is[Notifier](p.backend)}, {"binder", is[Binder](p.backend)}, {"resetter", is[Resetter](p.backend)},
	} {
		if c.has {
			out = append(out, c.name)
		}
	}
	return out
}

func is[T any](b Backend) bool { _, ok := b.(T); return ok }

func sortedSet[K ~string | ~int32](set map[K]bool) []K {
	out := make([]K, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (a admin) ExplainMachine(_ context.Context, req *connect.Request[bigfleetv1alpha1.ExplainMachineRequest]) (*connect.Response[bigfleetv1alpha1.ExplainMachineResponse], error) {
	p, id := a.p, req.Msg.GetId()
	if p.phase.Load() == starting {
		return nil, server.Error(connect.CodeUnavailable, a.p.unread().Error(), retryHint(time.Second))
	}
	slot := p.inventory.Acquire(id)
	r, marks := slot.Record(), slot.Marks()
	p.inventory.Release(slot)
	if r == nil {
		return nil, server.Error(connect.CodeNotFound, fmt.Sprintf("there is no machine %.128q; List shows the machines", id))
	}
	out := &bigfleetv1alpha1.ExplainMachineResponse{Machine: r.Machine(), OperationIds: map[string]string{}}
	for _, m := range marks {
		out.Marks = append(out.Marks, &bigfleetv1alpha1.FenceMark{ShardId: m.Shard, Epoch: m.Token.Epoch, Sequence: m.Token.Sequence})
	}
	for _, k := range lifecycle.Kinds() {
		if op := r.Operation(k); op != "" {
			out.OperationIds[k.String()] = op
		}
	}
	if k := lifecycle.InFlight(r.State); k != 0 {
		out.Transitions = append(out.Transitions, &bigfleetv1alpha1.TransitionRecord{
			Rpc: k.String(), OperationId: r.Operation(k), Result: r.State, StartedAtUnixNanos: r.AcceptedAt.UnixNano(),
		})
	}
	for _, t := range p.histories.of(id) {
		rpc := "host"
		if t.kind != 0 {
			rpc = t.kind.String()
		}
		out.Transitions = append(out.Transitions, &bigfleetv1alpha1.TransitionRecord{
			Rpc: rpc, OperationId: t.id, Result: t.result, Cause: t.cause,
			StartedAtUnixNanos: t.began.UnixNano(), EndedAtUnixNanos: t.ended.UnixNano(),
		})
	}
	out.Transitions = out.Transitions[:min(historyMax, len(out.Transitions))]
	return connect.NewResponse(out), nil
}

func (a admin) RetireMachine(ctx context.Context, req *connect.Request[bigfleetv1alpha1.RetireMachineRequest]) (*connect.Response[bigfleetv1alpha1.RetireMachineResponse], error) {
	p, id := a.p, req.Msg.GetId()
	if err := p.adminReady(); err != nil {
		return nil, err
	}
	r := recordOf(p.inventory.Get(id))
	switch {
	case r == nil:
		return nil, server.Error(connect.CodeNotFound, fmt.Sprintf("there is no machine %.128q; List shows the machines", id))
	case r.State != lifecycle.Failed:
		return nil, server.Error(connect.CodeAborted, fmt.Sprintf("machine %q is %s; only FAILED machines can be retired", id, server.StateName(r.State)))
	case r.IsBound() && !r.Lost && !req.Msg.GetForce():
		return nil, server.Error(connect.CodeAborted, fmt.Sprintf("machine %q is bound to cluster %q, and workloads may run on it; check it, then set force", id, r.Cluster))
	case req.Msg.GetValidateOnly():
		return connect.NewResponse(&bigfleetv1alpha1.RetireMachineResponse{}), nil
	case !p.janitor.claim(id):
		return nil, server.Error(connect.CodeAborted, fmt.Sprintf("machine %q is already being retired", id))
	}
	p.log.Warn("admin: retire", "machine", id, "force", req.Msg.GetForce(), "reason", req.Msg.GetReason())
	type answer struct {
		id  string
		err error
	}
	done := make(chan answer, 1)
	p.workers.Go(func() { // continues when the caller goes away
		defer p.janitor.free(id)
		replacement, err := p.retire(p.work, id, true, req.Msg.GetForce())
		done <- answer{replacement, err}
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got := <-done:
		if errors.Is(got.err, errNotFailed) {
			return nil, server.Error(connect.CodeAborted, got.err.Error())
		}
		if got.err != nil {
			return nil, server.Error(connect.CodeUnavailable, got.err.Error(), retryHint(time.Minute))
		}
		return connect.NewResponse(&bigfleetv1alpha1.RetireMachineResponse{ReplacementId: got.id}), nil
	}
}

func (a admin) AcknowledgeLoss(_ context.Context, req *connect.Request[bigfleetv1alpha1.AcknowledgeLossRequest]) (*connect.Response[bigfleetv1alpha1.AcknowledgeLossResponse], error) {
	p := a.p
	if err := p.adminReady(); err != nil {
		return nil, err
	}
	held := p.losses.holding()
	if len(held) != int(req.Msg.GetHosts()) {
		return nil, server.Error(connect.CodeAborted, fmt.Sprintf("%d hosts are held, but the request names %d; read the state again", len(held), req.Msg.GetHosts()))
	}
	out := &bigfleetv1alpha1.AcknowledgeLossResponse{Ids: held}
	if req.Msg.GetValidateOnly() {
		return connect.NewResponse(out), nil
	}
	p.log.Warn("admin: acknowledge loss", "hosts", len(held), "reason", req.Msg.GetReason())
	if err := p.giveUp(held); err != nil {
		return nil, server.Error(connect.CodeUnavailable, err.Error())
	}
	p.losses.mu.Lock()
	p.losses.held = nil
	p.losses.mu.Unlock()
	p.metrics.guard.Set(0)
	return connect.NewResponse(out), nil
}

func (a admin) SetMutations(_ context.Context, req *connect.Request[bigfleetv1alpha1.SetMutationsRequest]) (*connect.Response[bigfleetv1alpha1.SetMutationsResponse], error) {
	p, mode := a.p, req.Msg.GetMode()
	if err := p.adminReady(); err != nil {
		return nil, err
	}
	if !req.Msg.GetValidateOnly() {
		p.log.Warn("admin: set mutations", "mode", mode.String(), "reason", req.Msg.GetReason())
		var stored []byte
		pause := mode == bigfleetv1alpha1.MutationMode_MUTATION_MODE_PAUSED
		if pause {
			stored = []byte(req.Msg.GetReason())
		}
		if err := p.inventory.SetSetting(settingPaused, stored); err != nil {
			return nil, server.Error(connect.CodeUnavailable, err.Error())
		}
		p.paused.Store(pause)
	}
	return connect.NewResponse(&bigfleetv1alpha1.SetMutationsResponse{Mode: mode}), nil
}

// ClaimEpoch is served like a mutation: to the shard of the certificate alone, and also while mutations are paused.
func (a admin) ClaimEpoch(_ context.Context, req *connect.Request[bigfleetv1alpha1.ClaimEpochRequest]) (*connect.Response[bigfleetv1alpha1.ClaimEpochResponse], error) {
	if err := a.p.adminReady(); err != nil {
		return nil, err
	}
	shard, epoch := req.Msg.GetShardId(), req.Msg.GetShardEpoch()
	if err := a.p.claim(shard, epoch); err != nil {
		return nil, err
	}
	return connect.NewResponse(&bigfleetv1alpha1.ClaimEpochResponse{ShardEpoch: epoch, StoreId: a.p.storeID()}), nil
}

// adminReady refuses an administrative write while the provider starts, stops or cannot write. A pause does not refuse it.
func (p *Provider) adminReady() error {
	if p.phase.Load() == serving && p.inventory.WriteError() == nil {
		return nil
	}
	return server.Error(connect.CodeUnavailable, "nothing was changed: the provider is starting, is stopping or cannot write its store", retryHint(time.Second))
}
