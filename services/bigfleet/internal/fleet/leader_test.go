package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// OPS-4.9: who answers too late is not said to have no leader: only one that was heard could tell. The connection opens and nothing comes,
// or it does not open in time.
func TestTooLateIsNotLeaderless(t *testing.T) {
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"no answer": func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, there) }()
			return here, nil
		},
		"no connection": func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := New(Config{Coordinator: []string{"192.0.2.1:7790"}, Timeout: time.Millisecond, Dial: dial})
			err := f.Leader(t.Context(), "listing shards", func(ctx context.Context, c Coordinator) error {
				_, err := c.Core.ListShards(ctx, connect.NewRequest(&bigfleetv1alpha1.ListShardsRequest{}))
				return err
			})
			var why *exit.Error
			if !errors.As(err, &why) || why.Code != exit.Unreachable || !strings.Contains(err.Error(), "no coordinator at 192.0.2.1:7790 answered within 1ms. --timeout sets") {
				t.Errorf("%s: %v", name, err)
			}
			f.Close()
			time.Sleep(time.Minute)
		})
	}
}

// OPS-4.9: why no coordinator answers is the same sentence however slow the way there is. Connections are closed without an answer, as a
// server does that wants TLS, and the first ones take longer to open than the first look waits.
func TestASlowServerThatWantsTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := New(Config{Coordinator: []string{"192.0.2.1:7790"}, Timeout: 30 * time.Second,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				if time.Since(begin) < 2*knockTimeout {
					time.Sleep(knockTimeout + time.Second)
				}
				here, there := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, there) }()
				time.AfterFunc(10*time.Millisecond, func() { _ = there.Close() })
				return here, nil
			}})
		err := f.Leader(t.Context(), "reading domains", func(ctx context.Context, c Coordinator) error {
			_, err := c.Core.ListDomainAssignments(ctx, connect.NewRequest(&bigfleetv1alpha1.ListDomainAssignmentsRequest{}))
			return err
		})
		var why *exit.Error
		if !errors.As(err, &why) || why.Code != exit.Unreachable || !strings.Contains(err.Error(), "closed the connection without an answer. If it serves TLS, give --tls-cert") {
			t.Error(err)
		}
		f.Close()
		time.Sleep(time.Minute) // connections that are still being opened
	})
}
