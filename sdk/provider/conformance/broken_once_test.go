package conformance_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"connectrpc.com/connect"
)

// brokenRepeats break section 7.
func brokenRepeats() []broken {
	return []broken{
		{"gives every cycle the same operation id", []string{"once/new-cycle-new-id", "life/cycles"}, func(w *wrong) {
			w.after = func(_ context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				if err == nil {
					a.OperationId = q.kind.String() + "-" + q.machine
				}
				return a, err
			}
		}},
		{"mints an id for each call", []string{"once/repeat-create", "once/repeat-configure", "once/repeat-drain", "once/repeat-delete", "race/burst"}, func(w *wrong) {
			var mu sync.Mutex
			n := 0
			w.after = func(_ context.Context, _ mutation, a *pbAck, err error) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if n++; err == nil {
					a.OperationId = fmt.Sprint("op-", n)
				}
				return a, err
			}
		}},
		{"keys repeats by the target state", []string{"once/create-and-drain-differ"}, func(w *wrong) {
			var mu sync.Mutex
			last := map[string]string{} // what made the machine IDLE
			w.after = func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if (q.kind == provider.Create || q.kind == provider.Drain) && connect.CodeOf(err) != connect.CodeFailedPrecondition {
					if m := w.state(ctx, q.machine); m.GetState() == idle && last[q.machine] != "" {
						return &pbAck{OperationId: last[q.machine], Machine: m}, nil
					}
					if err == nil {
						last[q.machine] = a.GetOperationId()
					}
				}
				return a, err
			}
		}},
		{"says yes to a second cluster", []string{"once/conflict", "walk/random"}, func(w *wrong) {
			w.after = func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				if connect.CodeOf(err) == connect.CodeAlreadyExists {
					return &pbAck{OperationId: "configure-again-" + q.machine, Machine: w.state(ctx, q.machine)}, nil
				}
				return a, err
			}
		}},
		{"lets the newest metadata of a repeat win", []string{"once/first-values-stay"}, func(w *wrong) {
			var mu sync.Mutex
			newest := map[string]map[string]string{}
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if q.kind == provider.Configure {
					newest[q.machine] = q.metadata
				}
				return nil, nil
			}
			w.shown = func(m *pbMach) {
				mu.Lock()
				defer mu.Unlock()
				if m.GetState() == configured && newest[m.GetId()] != nil {
					m.ShardMetadata = newest[m.GetId()]
				}
			}
		}},
	}
}
