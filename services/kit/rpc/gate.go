package rpc

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
)

// gate judges a call by its headers and certificate, before anything of its body is read or decompressed: a caller without
// rights costs one request header.
type gate struct {
	edge          *edge
	table         map[string]Access
	insecureAdmin bool
	onRefused     func(Refusal)
	further       func(ctx context.Context, procedure string) error
}

func (g *gate) admit(ctx context.Context, spec connect.Spec, _ connect.Peer, _ http.Header) (context.Context, error) {
	start := time.Now()
	peer := PeerFrom(ctx)
	err := g.table[spec.Procedure].judge(peer, g.insecureAdmin)
	if err != nil && g.onRefused != nil {
		g.onRefused(Refusal{Procedure: spec.Procedure, Peer: peer, Err: err})
	}
	if err == nil && g.further != nil {
		err = g.further(ctx, spec.Procedure)
	}
	if err != nil {
		return nil, g.edge.finish(ctx, spec.Procedure, start, err)
	}
	return nil, nil
}
