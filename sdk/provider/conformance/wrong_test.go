package conformance_test

import (
	"context"
	"errors"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

type (
	pbAck  = bigfleetv1alpha1.TransitionAck
	pbMach = bigfleetv1alpha1.Machine
	pbList = bigfleetv1alpha1.MachineList
)

// mutation is one of the four requests, taken apart.
type mutation struct {
	kind            provider.Kind
	machine, shard  string
	epoch, sequence int64
	cluster         string
	metadata        map[string]string
	blob            []byte
	grace           int64
}

// wrong is a provider that is right but for what its hooks change: it stands in front of a good one.
type wrong struct {
	good bigfleetv1alpha1connect.CapacityProviderClient
	// before may answer or change a mutation; a nil ack and a nil error let it go on.
	before func(ctx context.Context, q *mutation) (*pbAck, error)
	// after may change the answer.
	after func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error)
	// shown changes every record that leaves.
	shown func(m *pbMach)
	// filter and listed change List.
	filter func(f *bigfleetv1alpha1.ListFilter)
	listed func(asked *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error)
	// read replaces Get.
	read func(ctx context.Context, id string) (*pbMach, error)
}

func (w *wrong) mutate(ctx context.Context, q mutation) (*connect.Response[pbAck], error) {
	var a *pbAck
	var err error
	if w.before != nil {
		a, err = w.before(ctx, &q)
	}
	if a == nil && err == nil {
		a, err = w.forward(ctx, q)
	}
	if w.after != nil {
		a, err = w.after(ctx, q, a, err)
	}
	if err != nil {
		return nil, err
	}
	if w.shown != nil && a.GetMachine() != nil {
		w.shown(a.GetMachine())
	}
	return connect.NewResponse(a), nil
}

func (w *wrong) forward(ctx context.Context, q mutation) (*pbAck, error) {
	var res *connect.Response[pbAck]
	var err error
	switch q.kind {
	case provider.Create:
		res, err = w.good.Create(ctx, connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: q.machine, ShardId: q.shard, ShardEpoch: q.epoch, SequenceNumber: q.sequence}))
	case provider.Configure:
		res, err = w.good.Configure(ctx, connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
			MachineId: q.machine, ShardId: q.shard, ShardEpoch: q.epoch, SequenceNumber: q.sequence, ClusterId: q.cluster, ShardMetadata: q.metadata, BootstrapBlob: q.blob,
		}))
	case provider.Drain:
		res, err = w.good.Drain(ctx, connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: q.machine, ShardId: q.shard, ShardEpoch: q.epoch, SequenceNumber: q.sequence, GracePeriodSeconds: q.grace}))
	case provider.Delete:
		res, err = w.good.Delete(ctx, connect.NewRequest(&bigfleetv1alpha1.DeleteRequest{MachineId: q.machine, ShardId: q.shard, ShardEpoch: q.epoch, SequenceNumber: q.sequence}))
	}
	if err != nil {
		return nil, again(err)
	}
	return res.Msg, nil
}

// again makes an error of a client one of a server.
func again(err error) error {
	var c *connect.Error
	if errors.As(err, &c) {
		return connect.NewError(c.Code(), errors.New(c.Message()))
	}
	return err
}

func (w *wrong) Create(ctx context.Context, r *connect.Request[bigfleetv1alpha1.CreateRequest]) (*connect.Response[pbAck], error) {
	return w.mutate(ctx, mutation{kind: provider.Create, machine: r.Msg.GetMachineId(), shard: r.Msg.GetShardId(), epoch: r.Msg.GetShardEpoch(), sequence: r.Msg.GetSequenceNumber()})
}
func (w *wrong) Configure(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ConfigureRequest]) (*connect.Response[pbAck], error) {
	return w.mutate(ctx, mutation{
		kind: provider.Configure, machine: r.Msg.GetMachineId(), shard: r.Msg.GetShardId(), epoch: r.Msg.GetShardEpoch(), sequence: r.Msg.GetSequenceNumber(),
		cluster: r.Msg.GetClusterId(), metadata: r.Msg.GetShardMetadata(), blob: r.Msg.GetBootstrapBlob(),
	})
}
func (w *wrong) Drain(ctx context.Context, r *connect.Request[bigfleetv1alpha1.DrainRequest]) (*connect.Response[pbAck], error) {
	return w.mutate(ctx, mutation{kind: provider.Drain, machine: r.Msg.GetMachineId(), shard: r.Msg.GetShardId(), epoch: r.Msg.GetShardEpoch(), sequence: r.Msg.GetSequenceNumber(), grace: r.Msg.GetGracePeriodSeconds()})
}
func (w *wrong) Delete(ctx context.Context, r *connect.Request[bigfleetv1alpha1.DeleteRequest]) (*connect.Response[pbAck], error) {
	return w.mutate(ctx, mutation{kind: provider.Delete, machine: r.Msg.GetMachineId(), shard: r.Msg.GetShardId(), epoch: r.Msg.GetShardEpoch(), sequence: r.Msg.GetSequenceNumber()})
}

func (w *wrong) Get(ctx context.Context, r *connect.Request[bigfleetv1alpha1.MachineRef]) (*connect.Response[pbMach], error) {
	if w.read != nil {
		m, err := w.read(ctx, r.Msg.GetId())
		if err != nil || m != nil {
			return connect.NewResponse(m), err
		}
	}
	res, err := w.good.Get(ctx, connect.NewRequest(r.Msg))
	if err != nil {
		return nil, again(err)
	}
	if w.shown != nil {
		w.shown(res.Msg)
	}
	return connect.NewResponse(res.Msg), nil
}

func (w *wrong) List(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ListFilter]) (*connect.Response[pbList], error) {
	f := proto.CloneOf(r.Msg)
	if w.filter != nil {
		w.filter(f)
	}
	res, err := w.good.List(ctx, connect.NewRequest(f))
	if err != nil {
		return nil, again(err)
	}
	l := res.Msg
	if w.shown != nil {
		for _, m := range l.GetMachines() {
			w.shown(m)
		}
	}
	if w.listed != nil {
		if l, err = w.listed(r.Msg, l); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(l), nil
}

// state reads the true record.
func (w *wrong) state(ctx context.Context, id string) *pbMach {
	res, err := w.good.Get(ctx, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
	if err != nil {
		return nil
	}
	return res.Msg
}
