package conformance_test

import (
	"context"
	"maps"
	"sync"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// brokenMetadata break section 8.
func brokenMetadata() []broken {
	return []broken{
		{"drops empty values from metadata", []string{"meta/echo"}, func(w *wrong) {
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				q.metadata = maps.Clone(q.metadata)
				maps.DeleteFunc(q.metadata, func(_, v string) bool { return v == "" })
				return nil, nil
			}
		}},
		{"cuts long metadata", []string{"meta/size", "args/request-of-4-mib"}, func(w *wrong) {
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				q.metadata = maps.Clone(q.metadata)
				for k, v := range q.metadata {
					q.metadata[k] = v[:min(len(v), 400)]
				}
				return nil, nil
			}
		}},
		{"keeps old metadata keys", []string{"meta/replace"}, func(w *wrong) {
			var mu sync.Mutex
			old := map[string]map[string]string{}
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				if q.kind != provider.Configure {
					return nil, nil
				}
				mu.Lock()
				defer mu.Unlock()
				merged := maps.Clone(old[q.machine])
				if merged == nil {
					merged = map[string]string{}
				}
				maps.Copy(merged, q.metadata)
				old[q.machine], q.metadata = merged, merged
				return nil, nil
			}
		}},
		{"clears the binding when Drain begins", []string{"life/drain", "meta/clear"}, func(w *wrong) {
			w.shown = func(m *pbMach) {
				if m.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_DRAINING {
					m.ShardMetadata = nil
				}
			}
		}},
		{"leaves the cluster on an idle machine", []string{"life/drain", "meta/clear", "field/every-record-seen"}, func(w *wrong) {
			var mu sync.Mutex
			last := map[string]string{}
			w.shown = func(m *pbMach) {
				mu.Lock()
				defer mu.Unlock()
				if m.GetCluster() != "" {
					last[m.GetId()] = m.GetCluster()
				} else if m.GetState() == idle {
					m.Cluster = last[m.GetId()]
				}
			}
		}},
		{"shows the boot data", []string{"meta/secret-stays-secret"}, func(w *wrong) {
			var mu sync.Mutex
			blobs := map[string]string{}
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				blobs[q.machine] = string(q.blob)
				return nil, nil
			}
			w.shown = func(m *pbMach) {
				mu.Lock()
				defer mu.Unlock()
				if b := blobs[m.GetId()]; b != "" && len(b) < 100 {
					m.Labels = map[string]string{"user-data": b}
				}
			}
		}},
	}
}
