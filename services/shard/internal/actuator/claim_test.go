package actuator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
)

// claiming is a provider that notes the order of the calls and answers ClaimEpoch with the next error.
type claiming struct {
	bigfleetv1alpha1connect.CapacityProviderClient
	bigfleetv1alpha1connect.ProviderAdminClient
	answers []error
	calls   []string
	epoch   int64
	store   string
}

func (p *claiming) ClaimEpoch(_ context.Context, r *connect.Request[pb.ClaimEpochRequest]) (*connect.Response[pb.ClaimEpochResponse], error) {
	p.calls, p.epoch = append(p.calls, "claim "+r.Msg.GetShardId()), r.Msg.GetShardEpoch()
	if len(p.answers) > 0 {
		err := p.answers[0]
		p.answers = p.answers[1:]
		return nil, err
	}
	return connect.NewResponse(&pb.ClaimEpochResponse{StoreId: p.store}), nil
}

func (p *claiming) Create(_ context.Context, r *connect.Request[pb.CreateRequest]) (*connect.Response[pb.TransitionAck], error) {
	p.calls = append(p.calls, "create "+r.Msg.GetMachineId())
	return nil, connect.NewError(connect.CodeAborted, errors.New("not asked here"))
}

// SHARD-20.8, PROV-6.20: the epoch is claimed before the first command, once; a provider without claims is used as before; a
// command whose claim fails is not sent.
func TestTheEpochIsClaimedBeforeTheFirstCommand(t *testing.T) {
	for _, x := range []struct {
		name    string
		answers []error
		want    []string
	}{
		{"served", nil, []string{"claim shard-0", "create m-1", "create m-2"}},
		{"not served", []error{connect.NewError(connect.CodeUnimplemented, errors.New("no"))}, []string{"claim shard-0", "create m-1", "create m-2"}},
		{"away at first", []error{connect.NewError(connect.CodeUnavailable, errors.New("away"))}, []string{"claim shard-0", "claim shard-0", "create m-2"}},
		{"overloaded at first", []error{connect.NewError(connect.CodeResourceExhausted, errors.New("later"))}, []string{"claim shard-0", "claim shard-0", "create m-2"}},
		{"a newer process has claimed", []error{connect.NewError(connect.CodeFailedPrecondition, errors.New("over")), connect.NewError(connect.CodeFailedPrecondition, errors.New("over"))},
			[]string{"claim shard-0", "claim shard-0"}},
	} {
		p := &claiming{answers: x.answers}
		l := loop.New(loop.Config{Core: core.New(nil)})
		a := New(Config{ShardID: "shard-0", Epoch: 7, Providers: []Provider{{Name: "p", Client: p, Admin: p}}, Loop: l, Blobs: noBlobs{}, Log: slog.New(slog.DiscardHandler)})
		for _, machine := range []string{"m-1", "m-2"} {
			a.command(t.Context(), core.Command{Provider: "p", RPC: core.RPCCreate, Machine: machine, Timeout: int64(time.Minute)}, 1, nil, func(error) {})
		}
		if !slices.Equal(p.calls, x.want) || p.epoch != 7 {
			t.Errorf("%s: calls %q with epoch %d, want %q", x.name, p.calls, p.epoch, x.want)
		}
		a.Stop(t.Context())
	}
}

// SHARD-3.12: a provider under two names is listed under the first alone; the second says which two they are. Providers with stores
// of their own, or of which nothing is known, are not mixed up.
func TestOneProviderUnderTwoNames(t *testing.T) {
	providers := []Provider{}
	for _, x := range [][2]string{{"a", "s1"}, {"b", "s2"}, {"localhost", "s1"}, {"silent", ""}, {"silent-2", ""}} {
		p := &claiming{store: x[1]}
		providers = append(providers, Provider{Name: x[0], Client: p, Admin: p})
	}
	a := New(Config{ShardID: "shard-0", Epoch: 7, Providers: providers, Loop: loop.New(loop.Config{Core: core.New(nil)}), Blobs: noBlobs{}, Log: slog.New(slog.DiscardHandler)})
	defer a.Stop(t.Context())
	if list, known := a.Stores(); known {
		t.Errorf("stores %v are known before any provider was asked", list)
	}
	for range 2 {
		for _, p := range providers {
			err := a.claimEpoch(t.Context(), p.Name)
			if same := p.Name == "localhost"; same != errors.Is(err, errSame) || same && !strings.Contains(err.Error(), "a and localhost") {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
	if list, known := a.Stores(); !known || list != nil {
		t.Errorf("stores %v, known %v, with providers that name none", list, known)
	}
	a.list(core.ListMachines{Provider: "localhost", List: 1, Timeout: int64(time.Minute)}) // its Client has no List
	if n := a.pages.Depth(); n != 1 {
		t.Errorf("%d answers of the refused List", n)
	}
}
