package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a caller without rights was read")
	return 0, io.EOF
}

// PROV-2.9: a certificate that may not call a procedure is refused before the body is read; one that may reaches the handler.
func TestCallersWithoutRightsSendNoContent(t *testing.T) {
	shard, readonly := identity.ID{Kind: identity.Shard, Name: "a"}, identity.ID{Kind: identity.ReadOnly}
	for _, x := range []struct {
		procedure string
		who       peer
		passes    bool
	}{
		{bigfleetv1alpha1connect.CapacityProviderCreateProcedure, peer{tls: true, id: shard}, true},
		{bigfleetv1alpha1connect.ProviderAdminClaimEpochProcedure, peer{tls: true, id: shard}, true},
		{bigfleetv1alpha1connect.CapacityProviderCreateProcedure, peer{tls: true, id: readonly}, false},
		{bigfleetv1alpha1connect.ProviderAdminClaimEpochProcedure, peer{tls: true, id: identity.ID{Kind: identity.Admin}}, false},
		{bigfleetv1alpha1connect.CapacityProviderListProcedure, peer{tls: true, id: readonly}, true},
		{bigfleetv1alpha1connect.ProviderAdminSetMutationsProcedure, peer{tls: true, id: shard}, false},
		{bigfleetv1alpha1connect.CapacityProviderListProcedure, peer{tls: true, err: errors.New("no SAN")}, false},
		{bigfleetv1alpha1connect.ProviderAdminSetMutationsProcedure, peer{}, false}, // plaintext from afar
		{bigfleetv1alpha1connect.CapacityProviderCreateProcedure, peer{}, true},
	} {
		reached, denied := false, 0
		s := &Server{Config: Config{Log: slog.New(slog.DiscardHandler), Denied: func(string) { denied++ }}}
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, x.who), http.MethodPost, x.procedure, unread{t})
		r.Header.Set("Content-Type", "application/proto")
		w := httptest.NewRecorder()
		s.authorized(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })).ServeHTTP(w, r)
		refused := w.Code == http.StatusForbidden && strings.Contains(w.Body.String(), "permission_denied")
		if reached != x.passes || refused == x.passes || (denied == 1) == x.passes {
			t.Errorf("%s by %v: reached %v, refused %v, counted %d", x.procedure, x.who, reached, refused, denied)
		}
	}
}
