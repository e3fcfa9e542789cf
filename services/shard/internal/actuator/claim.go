package actuator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// claim is what became of ClaimEpoch at one provider.
type claim struct {
	mu    sync.Mutex
	done  bool  // claimed, or the provider does not serve it
	same  error // the provider was claimed under another name before
	store string
}

// Stores names the stores behind the providers, sorted, once all of them have answered; before that known is false. It is empty if
// some provider does not name its store.
func (a *Actuator) Stores() (list []string, known bool) {
	for name, p := range a.clients {
		if p.Admin == nil {
			return nil, true
		}
		one, claimed := a.claims.Load(name)
		if !claimed {
			return nil, false
		}
		c := one.(*claim)
		if !c.mu.TryLock() { // it is being asked
			return nil, false
		}
		done, store := c.done, c.store
		c.mu.Unlock()
		if !done {
			return nil, false
		}
		list = append(list, store)
	}
	slices.Sort(list)
	if len(list) > 0 && list[0] == "" {
		return nil, true
	}
	return slices.Compact(list), true
}

// errSame is the error of a provider that this shard buys from under two names.
var errSame = errors.New("one provider under two names")

// claimEpoch claims the epoch of this process at a provider, once, so that an older process of this shard is refused there on
// every machine (SHARD-20.8, PROV-6.20). It is called in front of the first List and of every command. An error is one
// that the command itself would meet: a newer process has claimed, or the provider does not answer. Or it is errSame: the
// store behind the claim is that of another provider of this shard, whose machines it would list a second time (SHARD-3.12).
func (a *Actuator) claimEpoch(ctx context.Context, provider string) error {
	p := a.clients[provider]
	if p.Admin == nil {
		return nil
	}
	one, _ := a.claims.LoadOrStore(provider, &claim{})
	c := one.(*claim)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return c.same
	}
	answer, err := unwrap(p.Admin.ClaimEpoch(ctx, connect.NewRequest(&pb.ClaimEpochRequest{ShardId: a.cfg.ShardID, ShardEpoch: a.cfg.Epoch})))
	if err != nil && connect.CodeOf(err) != connect.CodeUnimplemented {
		return err
	}
	if err != nil {
		a.cfg.Log.Info("the provider does not support epoch claims; it fences an older process of this shard machine by machine", "provider", provider)
	}
	c.done = true
	c.store = answer.GetStoreId()
	if a.cfg.OnClaim != nil {
		defer a.cfg.OnClaim()
	}
	if store := answer.GetStoreId(); store != "" {
		if first, taken := a.stores.LoadOrStore(store, provider); taken {
			c.same = fmt.Errorf("%w: %s and %s have the same store %s; remove one of them from --provider-addr", errSame, first, provider, store)
		}
	}
	return c.same
}
