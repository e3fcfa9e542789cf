package server

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

// authorized refuses a certificate that may not call a procedure before the body of the call is read, so that a caller without rights
// costs no memory. Which shard a mutation names is in the body: gate judges that.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := r.Context().Value(peerKey{}).(peer)
		ours := strings.HasPrefix(r.URL.Path, "/"+bigfleetv1alpha1connect.CapacityProviderName+"/") ||
			strings.HasPrefix(r.URL.Path, "/"+bigfleetv1alpha1connect.ProviderAdminName+"/")
		if ours {
			if reason, message := s.denied(who, r.URL.Path, who.id.Name); reason != "" {
				s.Denied(reason)
				s.refused.log(s.Log, r.URL.Path, who, reason)
				_ = connect.NewErrorWriter().Write(w, r, Error(connect.CodePermissionDenied, message)) // the caller may be gone
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// gate refuses callers before every other check and records nothing but the refusal (PROV-2.6 to 2.9).
func (s *Server) gate() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			who, _ := ctx.Value(peerKey{}).(peer)
			shard := ""
			if fenced, ok := req.Any().(interface{ GetShardId() string }); ok {
				shard = fenced.GetShardId()
			}
			if err := s.judge(who, req.Spec().Procedure, shard); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}
	})
}

// early refuses, before the body of a request is read or decompressed, what no field of it could allow.
func (s *Server) early(ctx context.Context, spec connect.Spec, _ connect.Peer, _ http.Header) (context.Context, error) {
	who, _ := ctx.Value(peerKey{}).(peer)
	err := s.judge(who, spec.Procedure, who.id.Name)
	if err != nil {
		s.Calls(spec.Procedure[strings.LastIndexByte(spec.Procedure, '/')+1:], connect.CodePermissionDenied.String(), 0)
	}
	return nil, err
}

func (s *Server) judge(who peer, procedure, shard string) error {
	reason, message := s.denied(who, procedure, shard)
	if reason == "" {
		return nil
	}
	s.Denied(reason)
	s.refused.log(s.Log, procedure, who, reason)
	return Error(connect.CodePermissionDenied, message)
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
	case bigfleetv1alpha1connect.ProviderAdminClaimEpochProcedure:
		return mutation
	case bigfleetv1alpha1connect.ProviderAdminExplainMachineProcedure:
		return adminRead
	}
	if strings.HasPrefix(procedure, "/"+bigfleetv1alpha1connect.ProviderAdminName+"/") {
		return adminWrite
	}
	return mutation
}

// denied gives the label and the sentence of a refusal; an empty label passes.
func (s *Server) denied(who peer, procedure, shard string) (reason, message string) {
	a := accessOf(procedure)
	if !who.tls {
		if a == adminWrite && !who.loopback {
			return "remote_plaintext", "a provider without TLS takes mutations from its own machine only"
		}
		return "", ""
	}
	if who.err != nil {
		if s.AnyShard && errors.Is(who.err, identity.ErrNone) && (a == mutation || a == read || a == describe) {
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

// identified lets reflection be read by anyone with an identity.
func (s *Server) identified(path string, next http.Handler) (string, http.Handler) {
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := r.Context().Value(peerKey{}).(peer)
		if who.tls && who.err != nil && !(s.AnyShard && errors.Is(who.err, identity.ErrNone)) {
			s.Denied("no_identity")
			_ = connect.NewErrorWriter().Write(w, r, Error(connect.CodePermissionDenied,
				"the certificate must carry exactly one bigfleet:// URI SAN: "+who.err.Error()))
			return
		}
		next.ServeHTTP(w, r)
	})
}
