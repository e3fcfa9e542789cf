package substrate

import (
	"context"
	"errors"
	"slices"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// Front puts the faults, the journal and the control service of a Cloud in front of another backend, such as an author's own over a
// model of the real cloud. So the whole suite, the profile fault included, runs through that backend's code. What a Behaviour
// lets through is the other backend's work; the Cloud keeps the books of which hosts there are, and of those that LoseHosts hides.
//
// The readiness of nodes and notices of the Cloud are its own: use it with provider.SubstrateReadiness.
type Front struct {
	*Served
	behind provider.Backend
}

// NewFront makes a Front. The backend must be a Deleter. Close ends both.
func NewFront(served *Served, behind provider.Backend) (*Front, error) {
	if _, ok := behind.(provider.Deleter); !ok {
		return nil, errors.New("substrate: the backend behind a Front needs Delete")
	}
	return &Front{served, behind}, nil
}

// Attach gives both the books.
func (f *Front) Attach(fleet provider.Fleet) {
	f.Cloud.Attach(fleet)
	if a, ok := f.behind.(provider.Attacher); ok {
		a.Attach(fleet)
	}
}

// Close ends the control service and the backend.
func (f *Front) Close() error {
	err := f.Served.Close()
	if c, ok := f.behind.(interface{ Close() error }); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Create launches with the backend.
func (f *Front) Create(ctx context.Context, op provider.CreateOp) (made provider.Host, err error) {
	err = f.inject(ctx, CallCreate, op.Machine, op.ID, func(ctx context.Context) (changed bool, err error) {
		if made, err = f.behind.Create(ctx, op); err != nil {
			return false, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.hosts[made.Ref] != nil {
			return false, nil
		}
		f.add(made.Ref, op.Machine, op.StoreID, op.ID)
		return true, nil
	})
	return made, err
}

// Configure is the backend's.
func (f *Front) Configure(ctx context.Context, op provider.ConfigureOp) error {
	return f.inject(ctx, CallConfigure, op.Machine, op.ID, func(ctx context.Context) (bool, error) {
		if err := f.there(op.Machine); err != nil {
			return false, err
		}
		if err := f.behind.Configure(ctx, op); err != nil {
			return false, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		h, err := f.of(op.Machine)
		if err != nil {
			return false, err
		}
		h.cluster, h.operation = op.Cluster, op.ID
		f.wake()
		return true, nil
	})
}

// Drain is the backend's.
func (f *Front) Drain(ctx context.Context, op provider.DrainOp) error {
	return f.inject(ctx, CallDrain, op.Machine, op.ID, func(ctx context.Context) (bool, error) {
		if err := f.there(op.Machine); err != nil {
			return false, err
		}
		return true, f.behind.Drain(ctx, op)
	})
}

// Delete is the backend's.
func (f *Front) Delete(ctx context.Context, op provider.DeleteOp) error {
	return f.inject(ctx, CallDelete, op.Machine, op.ID, func(ctx context.Context) (changed bool, err error) {
		deleter, ok := f.behind.(provider.Deleter)
		if !ok {
			return false, errors.ErrUnsupported
		}
		if err := deleter.Delete(ctx, op); err != nil {
			return false, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, h := range f.sorted() {
			if h.ref == op.Machine.HostRef || op.Machine.HostRef == "" && h.machine == op.Machine.ID {
				f.end(h)
				changed = true
			}
		}
		return changed, nil
	})
}

// there answers for a host that LoseHosts hides.
func (f *Front) there(m provider.Machine) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.of(m)
	return err
}

// Bind is the backend's, where it is a Binder.
func (f *Front) Bind(ctx context.Context, m provider.Machine, b provider.Binding) error {
	if binder, ok := f.behind.(provider.Binder); ok {
		return binder.Bind(ctx, m, b)
	}
	return f.Cloud.Bind(ctx, m, b)
}

// Unbind is the backend's, where it is a Binder.
func (f *Front) Unbind(ctx context.Context, m provider.Machine) error {
	if binder, ok := f.behind.(provider.Binder); ok {
		return binder.Unbind(ctx, m)
	}
	return f.Cloud.Unbind(ctx, m)
}

// Admit is the backend's, where it is an Admitter.
func (f *Front) Admit(kind provider.Kind, m provider.Machine, cluster string) error {
	if a, ok := f.behind.(provider.Admitter); ok {
		return a.Admit(kind, m, cluster)
	}
	return nil
}

// Describe shows what the backend describes, without the hosts that are lost.
func (f *Front) Describe(ctx context.Context, found func(provider.Host) error) error {
	var shown []provider.Host
	err := f.inject(ctx, CallDescribe, provider.Machine{}, "", func(ctx context.Context) (bool, error) {
		shown = nil
		return false, f.behind.Describe(ctx, func(h provider.Host) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if one := f.hosts[h.Ref]; one == nil || !one.lost {
				shown = append(shown, h)
			}
			return nil
		})
	})
	var old *staleError
	f.mu.Lock()
	switch {
	case errors.As(err, &old):
		shown, err = slices.Clone(f.stale), nil
	case err == nil:
		f.stale = slices.Clone(shown)
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	for _, h := range shown {
		if err := found(h); err != nil {
			return err
		}
	}
	return ctx.Err()
}
