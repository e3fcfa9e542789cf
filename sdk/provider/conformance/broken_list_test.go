package conformance_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"connectrpc.com/connect"
)

// brokenLists break sections 9 and 10.
func brokenLists() []broken {
	return []broken{
		{"ignores the states filter", []string{"list/states"}, func(w *wrong) {
			w.filter = func(f *bigfleetv1alpha1.ListFilter) { f.States = nil }
		}},
		{"ignores max_results", []string{"list/cap"}, func(w *wrong) {
			w.filter = func(f *bigfleetv1alpha1.ListFilter) { f.MaxResults = 0 }
		}},
		{"returns the newest cursor with a page", []string{"list/pages"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if l.GetMore() {
					if all, err := w.good.List(context.Background(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{})); err == nil {
						l.Revision = all.Msg.GetRevision()
					}
				}
				return l, nil
			}
		}},
		{"misses the newest change in a delta", []string{"list/delta", "list/old-cursors"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if !l.GetComplete() && len(l.GetMachines()) > 0 {
					l.Machines = l.GetMachines()[:len(l.GetMachines())-1]
				}
				return l, nil
			}
		}},
		{"answers an unknown cursor with an error", []string{"list/junk-cursors"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if len(f.GetSinceRevision()) > 0 && l.GetComplete() && f.GetMaxResults() == 0 {
					return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("bad cursor"))
				}
				return l, nil
			}
		}},
		{"reads junk as a delta of nothing", []string{"list/junk-cursors"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if len(f.GetSinceRevision()) > 0 && l.GetComplete() && f.GetMaxResults() == 0 {
					l.Machines, l.Complete = nil, false
				}
				return l, nil
			}
		}},
		{"moves the revision with every read", []string{"list/quiet"}, func(w *wrong) {
			var mu sync.Mutex
			n := byte(0)
			w.filter = func(f *bigfleetv1alpha1.ListFilter) {
				f.SinceRevision = f.SinceRevision[:max(0, len(f.SinceRevision)-1)]
			}
			w.listed = func(_ *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				mu.Lock()
				defer mu.Unlock()
				n++
				l.Revision = append(l.Revision, n)
				return l, nil
			}
		}},
		{"lists a machine twice", []string{"list/set"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if n := len(l.GetMachines()); n > 1 && f.GetMaxResults() == 0 {
					l.Machines = append(l.Machines, l.GetMachines()[0])
				}
				return l, nil
			}
		}},
		{"misses moving machines in a list", []string{"list/cut"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				l.Machines = slices.DeleteFunc(l.GetMachines(), func(m *pbMach) bool {
					s := m.GetState()
					return s != speculative && s != idle && s != configured && s != failed
				})
				return l, nil
			}
		}},
		{"has spot that is never interrupted", []string{"field/spot", "field/inventory"}, func(w *wrong) {
			w.shown = func(m *pbMach) { m.InterruptionProbability = 0 }
		}},
		{"puts the zone into the labels", []string{"field/inventory"}, func(w *wrong) {
			w.shown = func(m *pbMach) {
				if m.Labels == nil {
					m.Labels = map[string]string{}
				}
				m.Labels["zone"] = m.GetZone()
			}
		}},
		{"has a negative price", []string{"field/inventory"}, func(w *wrong) {
			w.shown = func(m *pbMach) { m.PricePerHour = -1 }
		}},
	}
}
