package conformance

import (
	"fmt"
	"math"
	"sync"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// own is a shard id that no other behaviour and no other run uses, so that first contact is first contact. Under mTLS with
// one certificate there is only one shard id, and behaviours that need several cannot be judged.
func (c *Case) own(n int) string {
	if c.Target.Shard != "" {
		c.cannot("this behaviour needs shard ids that the provider has not seen, and the certificate is for %q only; give hook certs or run in plaintext", c.Target.Shard)
	}
	return fmt.Sprintf("conformance-%s-%s-%d", c.suite.run, c.behaviour.name, n)
}

// probe sends a mutation that is refused for its position if the token passes, so that only the mark moves: Create on a
// machine that is configured. It answers whether the token was stale.
func (c *Case) probe(id string, f fence) (stale bool) {
	_, err := c.send(request{kind: lifecycle.Create, machine: id, fence: f})
	return codeOf(err) == connect.CodeFailedPrecondition
}

// claim claims an epoch for a shard. A provider may leave claims out (PROV-6.20).
func (c *Case) claim(shard string, epoch int64) error {
	_, err := c.suite.dialer.admin(c.suite.target.TLS).ClaimEpoch(c.ctx, connect.NewRequest(&bigfleetv1alpha1.ClaimEpochRequest{ShardId: shard, ShardEpoch: epoch}))
	if code := codeOf(err); code == connect.CodeUnimplemented || code == connect.CodePermissionDenied || code == connect.CodeResourceExhausted {
		c.excused("the provider does not serve ClaimEpoch (%s), which is optional (tier B)", codeName(code))
	}
	return err
}

// judgeTokens sends tokens in order and compares each answer.
func (c *Case) judgeTokens(id, shard string, tokens []token, wantStale []bool) {
	for i, t := range tokens {
		if stale := c.probe(id, fence{shard, t.epoch, t.sequence}); stale != wantStale[i] {
			c.check(false, "token %d of %v: stale is %v, must be %v", i+1, tokens, stale, wantStale[i])
			return
		}
	}
}

func fenceBehaviours() []behaviour {
	order := func(tokens []token, stale ...bool) func(*Case) {
		return func(c *Case) { c.judgeTokens(c.node(), c.own(0), tokens, stale) }
	}
	return []behaviour{
		{
			name: "fence/stale-token", profile: Core, hosts: 1, clauses: []string{"PROV-6.3", "PROV-6.4", "PROV-6.9"},
			says: "reject each token that is not strictly newer than the mark, compared by epoch and then by sequence",
			do: order([]token{{5, 10}, {5, 10}, {5, 9}, {4, 99}, {5, 11}, {6, -3}, {6, -4}, {5, 100}, {6, -2}},
				false, true, true, true, false, false, true, true, false),
		},
		{
			name: "fence/negative", profile: Core, hosts: 1, clauses: []string{"PROV-6.6", "PROV-6.7"},
			says: "treat negative numbers as ordinary ones, also in the first token of a shard",
			do:   order([]token{{-7, -7}, {-7, -8}, {-7, -6}, {-8, 5}, {-6, -9}, {0, 0}, {0, -1}}, false, true, false, true, false, false, true),
		},
		{
			name: "fence/extremes", profile: Core, hosts: 1, clauses: []string{"PROV-6.8"},
			says: "compare the extremes of int64 without overflow: after (max, max) each token is stale",
			do: order([]token{{math.MinInt64, math.MinInt64}, {math.MinInt64, math.MinInt64}, {math.MinInt64, math.MaxInt64}, {math.MaxInt64, math.MinInt64},
				{math.MaxInt64, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}, {math.MaxInt64 - 1, math.MaxInt64}, {math.MinInt64, 0}},
				false, true, false, false, false, true, true, true),
		},
		{
			name: "fence/first-contact", profile: Core, hosts: 1, clauses: []string{"PROV-6.6"},
			says: "accept the first token of a shard for a machine, whatever it is, zeros included",
			do: func(c *Case) {
				id := c.node()
				for i, t := range []token{{0, 0}, {-1, -1}, {math.MaxInt64, 0}, {1, math.MinInt64}} {
					shard := c.own(i)
					c.check(!c.probe(id, fence{shard, t.epoch, t.sequence}), "the first token %v is called stale", t)
					c.check(c.probe(id, fence{shard, t.epoch, t.sequence}), "its replay is accepted")
				}
			},
		},
		{
			name: "fence/effect", profile: Core, hosts: 1, clauses: []string{"PROV-6.4", "PROV-4.4"},
			says: "change nothing for a stale token: no transition, no binding, no operation id",
			do: func(c *Case) {
				id, shard := c.host(), c.own(0)
				c.check(!c.probe(id, fence{shard, 10, 10}), "the first token of a shard is called stale")
				before := c.get(id)
				for _, k := range c.kinds() {
					q := c.ordinary(k, id, fence{shard, 10, 9})
					a, err := c.send(q)
					c.check(codeOf(err) == connect.CodeFailedPrecondition && a == nil, "%s with a stale token: %s", k, codeName(codeOf(err)))
					c.same(k.String()+" with a stale token", before)
				}
			},
		},
		{
			name: "fence/refusal-moves-mark", profile: Core, hosts: 1, clauses: []string{"PROV-6.5"},
			says: "raise the mark to each token that passed the fence, even if the call is then rejected",
			do: func(c *Case) {
				id, shard := c.host(), c.own(0)
				for i, q := range []request{
					{kind: lifecycle.Configure},                   // no cluster
					{kind: lifecycle.Drain, grace: math.MinInt64}, // negative grace, or wrong state
				} {
					q.machine, q.fence = id, fence{shard, 1, int64(i + 1)}
					if _, err := c.send(q); codeOf(err) == connect.CodeFailedPrecondition {
						c.check(false, "%s with token (1, %d) is called stale", q.kind, i+1)
					}
					if c.get(id).GetState() != idle { // a provider may read a negative grace as 0, never on IDLE
						c.failf("a rejected call changed the machine")
					}
					c.check(c.probe(id, q.fence), "the token of a rejected %s is accepted again", q.kind)
				}
			},
		},
		{
			name: "fence/stale-keeps-mark", profile: Core, hosts: 1, clauses: []string{"PROV-6.4"},
			says: "keep the mark when a token is stale",
			do:   order([]token{{2, 5}, {1, 1}, {2, 3}, {1, 9}, {2, 4}, {2, 6}}, false, true, true, true, true, false),
		},
		{
			name: "fence/before-existence", profile: Core, clauses: []string{"PROV-4.1", "PROV-4.2", "PROV-6.5"},
			says: "check the token before it checks that the machine exists",
			do: func(c *Case) {
				for _, k := range c.kinds() {
					id, shard := "nobody-"+c.suite.run+"-"+k.Label(), c.own(int(k))
					_, err := c.send(c.ordinary(k, id, fence{shard, 1, 1}))
					c.check(codeOf(err) == connect.CodeNotFound, "%s: %s", k, codeName(codeOf(err)))
					_, err = c.send(c.ordinary(k, id, fence{shard, 1, 1}))
					c.check(codeOf(err) == connect.CodeFailedPrecondition, "%s again with the same token: %s, not FAILED_PRECONDITION", k, codeName(codeOf(err)))
				}
			},
		},
		{
			name: "fence/before-repeat", profile: Core, hosts: 1, clauses: []string{"PROV-4.2", "PROV-6.12", "PROV-7.6"},
			says: "reject a stale replay of an applied operation, and answer the same request with a fresh token with the known operation id",
			do: func(c *Case) {
				id, shard := c.host(), c.own(0)
				first, err := c.send(c.ordinary(lifecycle.Configure, id, fence{shard, 1, 1}))
				if err != nil {
					c.failf("Configure: %v", err)
				}
				c.settles(id, lifecycle.Configure)
				_, err = c.send(c.ordinary(lifecycle.Configure, id, fence{shard, 1, 1}))
				c.check(codeOf(err) == connect.CodeFailedPrecondition, "a stale replay: %s", codeName(codeOf(err)))
				again, err := c.send(c.ordinary(lifecycle.Configure, id, fence{shard, 1, 2}))
				c.repeated("with a fresh token", lifecycle.Configure, first, again, err)
				c.check(c.probe(id, fence{shard, 1, 2}), "the repeat did not raise the mark")
			},
		},
		{
			name: "fence/all-kinds", profile: Core, hosts: 1, clauses: []string{"PROV-6.1", "PROV-6.2"},
			says: "fence every mutation, with one mark for all of them",
			do: func(c *Case) {
				id, shard := c.node(), c.own(0)
				c.check(!c.probe(id, fence{shard, 1, 100}), "the first token of a shard is called stale")
				for i, k := range c.kinds() {
					_, err := c.send(c.ordinary(k, id, fence{shard, 1, 100 - int64(i)}))
					c.check(codeOf(err) == connect.CodeFailedPrecondition, "%s with an old token: %s", k, codeName(codeOf(err)))
				}
				c.check(c.get(id).GetState() == configured, "an old token changed the machine")
			},
		},
		{
			name: "fence/machines-are-apart", profile: Core, hosts: 2, clauses: []string{"PROV-6.2", "PROV-6.10"},
			says: "keep one mark per shard and machine: a high token for one machine does not fence another machine",
			do: func(c *Case) {
				ids, shard := c.bound(2), c.own(0)
				c.check(!c.probe(ids[0], fence{shard, 1, 1_000_000}), "the first token of a shard is called stale")
				c.check(!c.probe(ids[1], fence{shard, 1, 1}), "a token for one machine fences another machine: the mark must be per machine")
				c.check(!c.probe(ids[1], fence{shard, 1, 2}), "a newer token is called stale")
				c.check(c.probe(ids[0], fence{shard, 1, 999_999}), "an older token is accepted")
			},
		},
		{
			name: "fence/shards-are-apart", profile: Core, hosts: 1, clauses: []string{"PROV-6.10"},
			says: "keep the tokens of several shards separate on one machine",
			do: func(c *Case) {
				id, a, b := c.node(), c.own(0), c.own(1)
				c.check(!c.probe(id, fence{a, 9, 9}) && !c.probe(id, fence{b, 1, 1}), "one shard's token fences another shard")
				c.check(!c.probe(id, fence{b, 1, 2}) && c.probe(id, fence{a, 9, 8}), "the marks of two shards are not separate")
			},
		},
		{
			name: "fence/unknown-machines", profile: Core, clauses: []string{"PROV-6.5", "PROV-6.16"},
			says: "keep marks for unknown machines too",
			do: func(c *Case) {
				id, shard := "nobody-"+c.suite.run+"-marks", c.own(0)
				for i, stale := range []bool{false, true, true, false} {
					t := []token{{3, 3}, {3, 3}, {2, 9}, {3, 4}}[i]
					if got := c.probe(id, fence{shard, t.epoch, t.sequence}); got != stale {
						c.check(false, "token %v: stale is %v, must be %v", t, got, stale)
					}
				}
			},
		},
		{
			name: "fence/unfenced", profile: Core, hosts: 1, clauses: []string{"PROV-6.11"},
			says: "never fence a caller with an empty shard id and zeros, record nothing for it, and fence the empty id with other numbers",
			do: func(c *Case) {
				if c.TLS != nil {
					c.cannot("mTLS rejects the empty shard id; run this behaviour in plaintext")
				}
				id, shard := c.node(), c.own(0)
				c.check(!c.probe(id, fence{shard, 5, 5}), "the first token of a shard is called stale")
				for range 3 {
					c.check(!c.probe(id, fence{}), "an unfenced call is called stale")
				}
				c.check(c.probe(id, fence{shard, 5, 5}) && !c.probe(id, fence{shard, 5, 6}), "unfenced calls changed a mark")
				epoch, n := c.suite.epoch, c.suite.seq.Add(1) // the empty shard id is shared by all runs and all passes of a soak
				c.check(!c.probe(id, fence{"", epoch, n}), "the first token of the empty shard id is called stale")
				c.check(c.probe(id, fence{"", epoch, n}) && c.probe(id, fence{"", epoch, n - 1}), "the empty shard id with a number is not fenced")
				c.check(!c.probe(id, fence{}), "an unfenced call is called stale after fenced calls of the empty shard id")
			},
		},
		{
			name: "fence/reads-are-free", profile: Core, hosts: 1, clauses: []string{"PROV-6.1"},
			says: "serve reads between fenced calls, and change no mark by a read",
			do: func(c *Case) {
				id, shard := c.node(), c.own(0)
				for i := range int64(5) {
					c.check(!c.probe(id, fence{shard, 1, i}), "token (1, %d) is called stale", i)
					c.get(id)
					c.list(&bigfleetv1alpha1.ListFilter{MaxResults: 1})
					c.check(c.probe(id, fence{shard, 1, i}), "a read lowered the mark")
				}
			},
		},
		{
			name: "fence/out-of-order", racing: true, profile: Core, clauses: []string{"PROV-6.2", "PROV-6.10", "PROV-13.3"},
			says: "accept all calls of one healthy shard whose workers overtake each other on different machines",
			do: func(c *Case) {
				shard, const400 := c.own(0), 400
				sequences := c.random.Perm(const400)
				var wait sync.WaitGroup
				places := make(chan struct{}, 50)
				for i, seq := range sequences {
					places <- struct{}{}
					wait.Go(func() {
						defer func() { <-places }()
						id := fmt.Sprintf("nobody-%s-%d", c.suite.run, i)
						c.check(!c.probe(id, fence{shard, 1, int64(seq)}), "a call about machine %d of %d is called stale", i, const400)
					})
				}
				wait.Wait()
			},
		},
		{
			name: "fence/claim", racing: true, profile: Core, hosts: 1, clauses: []string{"PROV-6.18", "PROV-6.19"},
			says: "reject a shard's mutations below its claimed epoch on each machine, known or not; leave other shards and all marks alone",
			do: func(c *Case) {
				id, unknown := c.node(), "nobody-"+c.suite.run+"-claim"
				shard, other := c.own(0), c.own(1)
				if err := c.claim(shard, 7); err != nil {
					c.failf("the first claim: %v", err)
				}
				for _, machine := range []string{id, unknown} {
					c.check(c.probe(machine, fence{shard, 6, math.MaxInt64}), "%s: epoch 6 is accepted below the claimed epoch 7", machine)
					c.check(!c.probe(machine, fence{shard, 7, 1}), "%s: the claimed epoch is rejected, or a rejection changed the mark", machine)
				}
				c.check(!c.probe(id, fence{other, 1, 1}), "the claim fences another shard")
				c.check(c.claim(shard, 7) == nil, "an equal claim is rejected")
				c.check(codeOf(c.claim(shard, 6)) == connect.CodeFailedPrecondition, "a lower claim is not rejected with FAILED_PRECONDITION")
				c.check(!c.probe(id, fence{shard, 7, 2}), "a lower claim replaced the higher one")
			},
		},
		{
			name: "fence/random", profile: Core, hosts: 2, clauses: []string{"PROV-6.3", "PROV-6.4", "PROV-6.5", "PROV-6.10"},
			says: "order random tokens of several shards and machines by epoch and then by sequence",
			do: func(c *Case) {
				ids := append(c.bound(2), "nobody-"+c.suite.run+"-random")
				marks := map[[2]string]token{}
				small := func() int64 { return int64(c.random.IntN(9) - 4) }
				for range 300 {
					id, shard := ids[c.random.IntN(len(ids))], c.own(c.random.IntN(3))
					t := token{small(), small()}
					mark, known := marks[[2]string{shard, id}]
					want := known && (t.epoch < mark.epoch || t.epoch == mark.epoch && t.sequence <= mark.sequence)
					if got := c.probe(id, fence{shard, t.epoch, t.sequence}); got != want {
						c.failf("token %v of %s about %s: stale is %v, the mark is %v (known %v)", t, shard, id, got, mark, known)
					}
					if !want {
						marks[[2]string{shard, id}] = t
					}
				}
			},
		},
	}
}
