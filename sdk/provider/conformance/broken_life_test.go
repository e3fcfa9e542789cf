package conformance_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"connectrpc.com/connect"
)

// brokenLives break sections 3 to 5, 11, 13 and 14.
func brokenLives() []broken {
	return []broken{
		{"uses FAILED_PRECONDITION for a wrong state", []string{"args/wrong-state", "args/wrong-state-of-a-slot", "fence/code-means-stale"}, func(w *wrong) {
			w.after = func(_ context.Context, _ mutation, a *pbAck, err error) (*pbAck, error) {
				if connect.CodeOf(err) == connect.CodeAborted {
					err = connect.NewError(connect.CodeFailedPrecondition, errors.New("wrong state"))
				}
				return a, err
			}
		}},
		{"answers NOT_FOUND with OK", []string{"args/unknown-machine"}, func(w *wrong) {
			w.after = func(_ context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				if connect.CodeOf(err) == connect.CodeNotFound {
					return &pbAck{OperationId: "x-" + q.machine + q.kind.String(), Machine: &pbMach{Id: q.machine, State: speculative}}, nil
				}
				return a, err
			}
		}},
		{"takes an empty cluster", []string{"args/empty-cluster"}, func(w *wrong) {
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				if q.kind == provider.Configure && q.cluster == "" {
					q.cluster = "default"
				}
				return nil, nil
			}
		}},
		{"blocks until the work is done", []string{"life/create", "life/configure", "life/drain", "life/delete"}, func(w *wrong) {
			w.after = func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				for err == nil {
					m := w.state(ctx, q.machine)
					if m.GetState() != q.kind.Edge().Through {
						a.Machine = m
						break
					}
					time.Sleep(time.Millisecond)
				}
				return a, err
			}
		}},
		{"reports CONFIGURED at once", []string{"ready/gate", "ready/never"}, func(w *wrong) {
			w.shown = func(m *pbMach) {
				if m.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING {
					m.State = configured
				}
			}
		}},
		{"goes back when a transition fails", []string{"fail/configure-error"}, func(w *wrong) {
			w.shown = func(m *pbMach) {
				if m.GetState() == failed && strings.HasPrefix(m.GetLastError(), "configure") {
					m.State, m.LastError, m.Failure, m.Cluster, m.ShardMetadata = idle, "", 0, "", nil
				}
			}
		}},
		{"fails without a reason", []string{"fail/configure-error", "field/every-record-seen"}, func(w *wrong) {
			w.shown = func(m *pbMach) { m.LastError = "" }
		}},
		{"turns errors of the substrate into the answer", []string{"fail/configure-error", "fail/drain-error"}, func(w *wrong) {
			w.after = func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				for i := 0; err == nil && i < 50; i++ {
					m := w.state(ctx, q.machine)
					if m.GetState() == failed {
						return nil, connect.NewError(connect.CodeInternal, errors.New(m.GetLastError()))
					}
					if m.GetState() == q.kind.Edge().To {
						break
					}
					time.Sleep(time.Millisecond)
				}
				return a, err
			}
		}},
		{"removes the record of a deleted machine", []string{"life/delete", "life/full-circle"}, func(w *wrong) {
			var mu sync.Mutex
			gone := map[string]bool{}
			w.after = func(_ context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil && q.kind == provider.Delete {
					gone[q.machine] = true
				}
				return a, err
			}
			w.read = func(ctx context.Context, id string) (*pbMach, error) {
				mu.Lock()
				defer mu.Unlock()
				if gone[id] && w.state(ctx, id).GetState() == speculative {
					return nil, connect.NewError(connect.CodeNotFound, errors.New("gone"))
				}
				return nil, nil
			}
		}},
		{"serves one machine at a time", []string{"race/slow-one"}, func(w *wrong) {
			var mu sync.Mutex
			w.before = func(ctx context.Context, q *mutation) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				a, err := w.forward(ctx, *q)
				for i := 0; err == nil && i < 5000 && w.state(ctx, q.machine).GetState() == q.kind.Edge().Through; i++ {
					time.Sleep(time.Millisecond)
				}
				return a, err
			}
		}},
	}
}
