package provider_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// slowStart is a cloud whose first Describe ends when it may.
type slowStart struct {
	*cloud
	may chan struct{}
}

func (c *slowStart) Describe(ctx context.Context, found func(provider.Host) error) error {
	select {
	case <-c.may:
		return c.cloud.Describe(ctx, found)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// PROV-10.5: a call that comes before the first round of Describe has ended waits for it and is answered; when the round takes too
// long, the call is UNAVAILABLE.
func TestEarlyCallsAreHeld(t *testing.T) {
	for _, x := range []struct {
		name  string
		round time.Duration // 0: it never ends
		want  connect.Code
	}{{"a short start", 100 * time.Millisecond, 0}, {"a start that takes too long", 0, connect.CodeUnavailable}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			c := &slowStart{newCloud(), make(chan struct{})}
			p, err := provider.New("cloud", c, provider.WithStore(store.Memory()), provider.WithReadiness(provider.NoReadiness()),
				provider.WithListener(l), provider.WithLogger(slog.New(slog.DiscardHandler)), provider.WithOfferings(small(2)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			if x.round > 0 {
				time.AfterFunc(x.round, func() { close(c.may) })
			}
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(true)
			defer transport.CloseIdleConnections()
			client := bigfleetv1alpha1connect.NewCapacityProviderClient(&http.Client{Transport: transport}, "http://"+l.Addr().String(), connect.WithGRPC())
			list, err := client.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
			if x.want == 0 && (err != nil || len(list.Msg.GetMachines()) != 2) || x.want != 0 && connect.CodeOf(err) != x.want {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}
