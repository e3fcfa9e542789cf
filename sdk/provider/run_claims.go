package provider

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/server"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// claims holds the epoch that each shard has claimed (PROV-6.18). A claim fences every machine at once, also those that
// the newer process has not touched yet. It is stored before it counts, and it is never dropped.
type claims struct {
	claiming sync.Mutex // one claim at a time
	// mu is held for reading from the fence check of a mutation to its commit, so that a claim waits for the mutations
	// that passed before it.
	mu     sync.RWMutex
	epochs map[string]int64
}

const claimPrefix = "claim/" // followed by the shard id

// load reads the claims of earlier processes.
func (c *claims) load(i *inventory.Inventory) error {
	c.epochs = map[string]int64{}
	for name, value := range i.Settings(claimPrefix) {
		if len(value) != 8 {
			return fmt.Errorf("the claim of shard %q has %d bytes instead of 8: the state file is damaged; restore a copy", name, len(value))
		}
		c.epochs[strings.TrimPrefix(name, claimPrefix)] = int64(binary.BigEndian.Uint64(value))
	}
	return nil
}

// outdated says whether the request carries a lower epoch than its shard has claimed. mu is held.
func (c *claims) outdated(q lifecycle.Request) (claimed int64, yes bool) {
	claimed, known := c.epochs[q.ShardID]
	return claimed, known && !q.Unfenced() && q.Token.Epoch < claimed
}

// claim puts the epoch of a shard into force and returns once no older mutation can pass.
func (p *Provider) claim(shard string, epoch int64) error {
	c := &p.claims
	c.claiming.Lock()
	defer c.claiming.Unlock()
	c.mu.RLock()
	claimed, known := c.epochs[shard]
	shards := len(c.epochs)
	c.mu.RUnlock()
	switch {
	case known && epoch < claimed:
		return server.Outdated(lifecycle.Request{ShardID: shard, Token: lifecycle.Token{Epoch: epoch}}, claimed)
	case !known && shards >= ClaimsMax:
		return server.Error(connect.CodeResourceExhausted, fmt.Sprintf("%d shards have claimed an epoch here, which is the limit; mutations work without a claim", shards))
	}
	if !known || epoch > claimed {
		if err := p.inventory.SetSetting(claimPrefix+shard, binary.BigEndian.AppendUint64(nil, uint64(epoch))); err != nil {
			return server.Error(connect.CodeUnavailable, "nothing was claimed: "+err.Error())
		}
	}
	c.mu.Lock() // waits for the mutations that passed the fence before
	defer c.mu.Unlock()
	c.epochs[shard] = epoch
	if !known || epoch > claimed {
		p.log.Info("epoch claimed", "shard", shard, "epoch", epoch)
	}
	return nil
}
