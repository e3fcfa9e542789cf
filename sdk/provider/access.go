package provider

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"

	"connectrpc.com/connect"
)

// peer is who calls: under mTLS the identity of the leaf certificate, in plaintext whether it is this machine.
type peer struct {
	tls      bool
	id       identity.ID
	err      error // why there is no identity
	loopback bool
}

type peerKey struct{}

// withPeer reads the peer once per request.
func withPeer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := peer{tls: r.TLS != nil}
		if who.tls {
			who.id, who.err = identity.FromState(*r.TLS)
		} else {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			ip := net.ParseIP(host)
			// A connection without an IP address is a pipe or a Unix socket of this machine.
			who.loopback = err != nil || ip == nil || ip.IsLoopback()
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, who)))
	})
}

// gate refuses callers before every other check and records nothing but the refusal (PROV-2.6 to 2.9).
func (p *Provider) gate() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			who, _ := ctx.Value(peerKey{}).(peer)
			shard := ""
			if fenced, ok := req.Any().(interface{ GetShardId() string }); ok {
				shard = fenced.GetShardId()
			}
			if reason, say := p.denied(who, req.Spec().Procedure, shard); reason != "" {
				p.metrics.denied.WithLabelValues(reason).Inc()
				p.log.Warn("denied", "procedure", req.Spec().Procedure, "peer", who.id.String(), "reason", reason, "err", who.err)
				return nil, newError(connect.CodePermissionDenied, say)
			}
			return next(ctx, req)
		}
	})
}

// access is the kind of a procedure for the table of WIRE-2.5.
type access uint8

const (
	mutation access = iota
	read
	describe // ProviderAdmin.GetProvider
	adminRead
	adminWrite
)

func accessOf(procedure string) access {
	switch procedure {
	case bigfleetv1alpha1connect.CapacityProviderGetProcedure, bigfleetv1alpha1connect.CapacityProviderListProcedure:
		return read
	case bigfleetv1alpha1connect.ProviderAdminGetProviderProcedure:
		return describe
	case bigfleetv1alpha1connect.ProviderAdminExplainMachineProcedure:
		return adminRead
	}
	if strings.HasPrefix(procedure, "/"+bigfleetv1alpha1connect.ProviderAdminName+"/") {
		return adminWrite
	}
	return mutation
}

// denied gives the label and the sentence of a refusal; an empty label passes.
func (p *Provider) denied(who peer, procedure, shard string) (reason, say string) {
	a := accessOf(procedure)
	if !who.tls {
		if a == adminWrite && !who.loopback {
			return "remote_plaintext", "orders to a provider without TLS are taken from its own machine only"
		}
		return "", ""
	}
	if who.err != nil {
		if p.set.anyShard && errors.Is(who.err, identity.ErrNone) && (a == mutation || a == read || a == describe) {
			return "", ""
		}
		return "no_identity", "the certificate must carry exactly one bigfleet:// URI SAN: " + who.err.Error()
	}
	switch {
	case who.id.Kind == identity.Shard && a == mutation && who.id.Name != shard:
		return "shard", who.id.String() + " may mutate only with its own shard_id"
	case who.id.Kind == identity.Shard && a <= describe:
		return "", ""
	case who.id.Kind == identity.ReadOnly && (a == read || a == describe || a == adminRead):
		return "", ""
	case who.id.Kind == identity.Admin && a != mutation:
		return "", ""
	}
	return "kind", who.id.String() + " may not call " + procedure
}

// known lets reflection be read by anyone who has an identity.
func (p *Provider) known(path string, next http.Handler) (string, http.Handler) {
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := r.Context().Value(peerKey{}).(peer)
		if who.tls && who.err != nil && !(p.set.anyShard && errors.Is(who.err, identity.ErrNone)) {
			p.metrics.denied.WithLabelValues("no_identity").Inc()
			_ = connect.NewErrorWriter().Write(w, r, newError(connect.CodePermissionDenied,
				"the certificate must carry exactly one bigfleet:// URI SAN: "+who.err.Error()))
			return
		}
		next.ServeHTTP(w, r)
	})
}
