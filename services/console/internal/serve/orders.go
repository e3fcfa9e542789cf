package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
)

// ActorHeader names to a shard the person for whom an order is given (WIRE-9.7).
const ActorHeader = "bigfleet-actor"

const userMax = 128 // bytes of a user's name

// Orders say how the console knows who asks, and who may give orders. The zero value means that it only reads (OPS-6.2).
type Orders struct {
	UserHeader string   // which the proxy in front sets
	Users      []string // "*": every user whom the proxy names
}

func (o Orders) on() bool { return o.UserHeader != "" }

// viewer is who sent a request, as far as orders are concerned.
type viewer struct {
	user    string // empty: no user was named
	err     error  // why the name cannot be used
	ownPage bool   // the browser says that a page of this console sent it
}

type viewerKey struct{}

// noteViewer puts the viewer into the request's context. front has refused other sites before.
func noteViewer(o Orders, next http.Handler) http.Handler {
	if !o.on() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := viewer{ownPage: r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") == "same-origin"}
		v.user, v.err = userOf(r.Header.Values(o.UserHeader))
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), viewerKey{}, v)))
	})
}

// userOf reads the one name that the proxy set. Two names are one of the proxy and one of somebody else.
func userOf(values []string) (string, error) {
	if len(values) > 1 {
		return "", errors.New("the request names several users: the proxy must replace the header, not add to it")
	}
	if len(values) == 0 || values[0] == "" {
		return "", nil
	}
	name := values[0]
	odd := strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
	if len(name) > userMax || !utf8.ValidString(name) || odd || name != strings.TrimSpace(name) {
		return "", fmt.Errorf("the user's name is not one: want 1 to %d bytes of printable UTF-8", userMax)
	}
	return name, nil
}

// may says whether the viewer may give orders.
func (o Orders) may(v viewer) bool {
	return o.on() && v.err == nil && v.user != "" && (slices.Contains(o.Users, v.user) || slices.Contains(o.Users, "*"))
}

// admit judges one order before its body is read.
func (o Orders) admit(ctx context.Context, procedure string) error {
	denied := func(code connect.Code, text string) error { return connect.NewError(code, errors.New(text)) }
	if !o.on() {
		return errReadsOnly
	}
	v, _ := ctx.Value(viewerKey{}).(viewer)
	switch {
	case !given[procedure]:
		return denied(connect.CodePermissionDenied, "the console does not give this order: give it with the command line, under your own certificate")
	case v.err != nil:
		return connect.NewError(connect.CodeUnauthenticated, v.err)
	case v.user == "":
		return denied(connect.CodeUnauthenticated, "no user is named: the proxy in front sets the header that --auth-header names")
	case !o.may(v):
		return denied(connect.CodePermissionDenied, fmt.Sprintf("%s may look and give no orders: --writers lists who may", v.user))
	case !v.ownPage:
		return denied(connect.CodePermissionDenied, "an order comes from a page of the console: programs use the command line, under their own certificate")
	}
	return nil
}

var errReadsOnly = connect.NewError(connect.CodePermissionDenied, errors.New("this console only reads: give orders with the command line, under your own certificate"))

// given are the orders that the console gives: each can be checked without being carried out, and undone or repeated without harm.
var given = map[string]bool{
	bigfleetv1alpha1connect.ShardAdminPauseActuationProcedure:  true,
	bigfleetv1alpha1connect.ShardAdminResumeActuationProcedure: true,
	bigfleetv1alpha1connect.ShardAdminRetryMachineProcedure:    true,
	bigfleetv1alpha1connect.ShardAdminClearBackoffProcedure:    true,
	bigfleetv1alpha1connect.ShardAdminAcceptRollupProcedure:    true,
}

// orderGateway forwards orders to the shard that the request's header names, under the console's order certificate and for the viewer.
type orderGateway struct {
	bigfleetv1alpha1connect.UnimplementedShardAdminHandler
	*Console
}

func give[Req, Res any](ctx context.Context, g *orderGateway, req *connect.Request[Req],
	call func(bigfleetv1alpha1connect.ShardAdminClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*connect.Response[Res], error) {
	shard, err := g.Sources.Shard(req.Header().Get(sources.TargetHeader))
	if err != nil {
		return nil, err
	}
	v, _ := ctx.Value(viewerKey{}).(viewer)
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	up := connect.NewRequest(req.Msg)
	up.Header().Set(ActorHeader, v.user)
	got, err := call(shard.Order, ctx, up)
	check := false
	if m, ok := any(req.Msg).(interface{ GetValidateOnly() bool }); ok {
		check = m.GetValidateOnly()
	}
	if !check {
		shard.Forget()
		g.counters.orders.Inc()
		level := slog.LevelInfo
		if err != nil {
			level = slog.LevelWarn
		}
		g.Log.Log(ctx, level, "an order was given", "user", v.user, "shard", shard.ID, "order", req.Spec().Procedure, "err", err)
	}
	if err != nil {
		return nil, passed(err)
	}
	return connect.NewResponse(got.Msg), nil
}

func (g *orderGateway) PauseActuation(ctx context.Context, r *connect.Request[pb.PauseActuationRequest]) (*connect.Response[pb.PauseActuationResponse], error) {
	return give(ctx, g, r, bigfleetv1alpha1connect.ShardAdminClient.PauseActuation)
}

func (g *orderGateway) ResumeActuation(ctx context.Context, r *connect.Request[pb.ResumeActuationRequest]) (*connect.Response[pb.ResumeActuationResponse], error) {
	return give(ctx, g, r, bigfleetv1alpha1connect.ShardAdminClient.ResumeActuation)
}

func (g *orderGateway) RetryMachine(ctx context.Context, r *connect.Request[pb.RetryMachineRequest]) (*connect.Response[pb.RetryMachineResponse], error) {
	return give(ctx, g, r, bigfleetv1alpha1connect.ShardAdminClient.RetryMachine)
}

func (g *orderGateway) ClearBackoff(ctx context.Context, r *connect.Request[pb.ClearBackoffRequest]) (*connect.Response[pb.ClearBackoffResponse], error) {
	return give(ctx, g, r, bigfleetv1alpha1connect.ShardAdminClient.ClearBackoff)
}

func (g *orderGateway) AcceptRollup(ctx context.Context, r *connect.Request[pb.AcceptRollupRequest]) (*connect.Response[pb.AcceptRollupResponse], error) {
	return give(ctx, g, r, bigfleetv1alpha1connect.ShardAdminClient.AcceptRollup)
}
