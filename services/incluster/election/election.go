// Package election lets one of several equal processes act at a time, by a Lease in the cluster.
//
// Run blocks until this process holds the Lease, runs the work, and gives the Lease back when the work has ended. A
// Lease that is lost ends the work at once and is an error: the process must end, because another one may act already.
// Without this, two operators of one cluster replace each other's session forever (OP-3.3).
//
// Why not client-go's elector: it waits up to 2.2 times its retry period between looks, by jitter meant for hundreds of
// candidates. Here are two, and the time until the other one takes over is a promise: a killed holder is replaced within
// Duration plus two Looks, one that stopped properly within one.
//
// The package keeps no state beyond a call of Run. Start there.
package election

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	leaseclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// Timing of a Lease (OP section 2).
const (
	Duration = 15 * time.Second // a Lease not renewed for this long is free
	Renew    = 10 * time.Second // a holder that could not renew for this long stops
	Retry    = 2 * time.Second  // between renewals
	Look     = 1 * time.Second  // between looks of a candidate: a renewal is seen one look late, its absence another
)

// ErrLost means that another process may hold the Lease now.
var ErrLost = errors.New("the leader election Lease was lost")

// Leases is what is needed of the API server; leaseclient.LeaseInterface has it.
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Client returns the Leases of a namespace.
func Client(c *rest.Config, namespace string) (Leases, error) {
	cl, err := leaseclient.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return cl.Leases(namespace), nil
}

// Config names the Lease.
type Config struct {
	Leases          Leases
	Namespace, Name string
	Identity        string           // empty means host name and a random part
	OnLeader        func(holds bool) // hears when the Lease is held and no longer; nil means that nothing does
	Log             *slog.Logger
}

type elector struct {
	Config
	lease *coordinationv1.Lease // as last seen
	seen  time.Time             // when it was last seen to change
}

// Run waits for the Lease and runs work while it is held. It returns nil when ctx ended, the error of work, or ErrLost.
func Run(ctx context.Context, c Config, work func(ctx context.Context) error) error {
	if c.Identity == "" {
		host, _ := os.Hostname()
		c.Identity = cmp.Or(host, "unknown") + "-" + rand.Text()[:8]
	}
	if c.OnLeader == nil {
		c.OnLeader = func(bool) {}
	}
	e := &elector{Config: c}
	for logged := ""; !e.acquire(ctx); {
		if e.lease != nil && holder(e.lease) != logged {
			logged = holder(e.lease)
			e.Log.Info("waiting for the leader election Lease: another replica holds it", "lease", e.Name, "holder", logged)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(Look):
		}
	}
	e.OnLeader(true)
	defer e.OnLeader(false)
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		if !e.renew(renewing) {
			cancel(ErrLost)
		}
	}()
	err := work(working)
	stopRenewing()
	<-renewed
	if errors.Is(context.Cause(working), ErrLost) {
		return errors.Join(ErrLost, err)
	}
	e.release(context.WithoutCancel(ctx))
	return err
}

// acquire takes the Lease if it is free.
func (e *elector) acquire(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, Renew)
	defer cancel()
	lease, err := e.Leases.Get(ctx, e.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = e.Leases.Create(ctx, e.held(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}}), metav1.CreateOptions{})
		if err == nil {
			e.lease = lease
			return true
		}
	}
	if err != nil {
		if ctx.Err() == nil && !apierrors.IsAlreadyExists(err) {
			e.Log.Warn("cannot read the leader election Lease", "lease", e.Name, "err", err)
		}
		return false
	}
	if e.lease == nil || e.lease.ResourceVersion != lease.ResourceVersion {
		e.lease, e.seen = lease, time.Now()
	}
	free := holder(lease) == "" || holder(lease) == e.Identity || time.Since(e.seen) >= Duration
	if !free {
		return false
	}
	lease, err = e.Leases.Update(ctx, e.held(lease), metav1.UpdateOptions{})
	if err == nil {
		e.lease = lease
	}
	return err == nil
}

// renew keeps the Lease until ctx ends. It returns false when the Lease is lost.
func (e *elector) renew(ctx context.Context) bool {
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return true
		case <-time.After(Retry):
		}
		call, cancel := context.WithDeadline(ctx, last.Add(Renew))
		lease, err := e.Leases.Update(call, e.held(e.lease), metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			if lease, err = e.Leases.Get(call, e.Name, metav1.GetOptions{}); err == nil {
				if holder(lease) != e.Identity {
					cancel()
					return false
				}
				e.lease = lease
				lease, err = e.Leases.Update(call, e.held(lease), metav1.UpdateOptions{})
			}
		}
		cancel()
		if err == nil {
			e.lease, last = lease, time.Now()
			continue
		}
		if ctx.Err() != nil {
			return true
		}
		e.Log.Warn("cannot renew the leader election Lease", "lease", e.Name, "err", err)
		if time.Since(last) >= Renew {
			return false
		}
	}
}

// release lets the other candidate take over at its next look.
func (e *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Retry)
	defer cancel()
	lease := e.lease.DeepCopy()
	lease.Spec.HolderIdentity = new("")
	lease.Spec.LeaseDurationSeconds = new(int32(1))
	lease.Spec.RenewTime = new(metav1.NowMicro())
	if _, err := e.Leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		e.Log.Warn("cannot give the leader election Lease back; the next holder waits for it to expire", "lease", e.Name, "err", err)
	}
}

func (e *elector) held(from *coordinationv1.Lease) *coordinationv1.Lease {
	lease, now := from.DeepCopy(), metav1.NowMicro()
	if holder(lease) != e.Identity {
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &e.Identity, &now
		transitions := int32(0)
		if t := lease.Spec.LeaseTransitions; t != nil {
			transitions = *t + 1
		}
		lease.Spec.LeaseTransitions = &transitions
	}
	lease.Spec.LeaseDurationSeconds = new(int32(Duration / time.Second))
	lease.Spec.RenewTime = &now
	return lease
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
