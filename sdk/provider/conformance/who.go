package conformance

import (
	"crypto/tls"
	"net/http"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// as is a client with the given SANs. Third-party providers may leave the rules out (PROV-2.10); they are judged only where
// the hook is there, which is how a target asks for it.
func (c *Case) as(sans ...string) bigfleetv1alpha1connect.CapacityProviderClient {
	config, err := c.Hooks.Certs(sans...)
	if err != nil {
		c.cannot("hook certs: %v", err)
	}
	return c.suite.dialer.another(config)
}

func whoBehaviours() []behaviour {
	needsCerts := func(do func(*Case)) func(*Case) {
		return func(c *Case) {
			if c.Hooks.Certs == nil {
				c.excused("hook certs is not given; identities are optional (PROV-2.10)")
			}
			do(c)
		}
	}
	denied := func(c *Case, what string, err error) {
		c.check(codeOf(err) == connect.CodePermissionDenied, "%s: %s, not PERMISSION_DENIED", what, codeName(codeOf(err)))
	}
	return []behaviour{
		{
			name: "who/shard", racing: true, profile: Core, hosts: 1, clauses: []string{"PROV-2.7", "PROV-2.9"},
			says: "let bigfleet://shard/<id> mutate with exactly that shard_id, and record nothing for a rejected call",
			do: needsCerts(func(c *Case) {
				id := c.node()
				a := c.as("bigfleet://shard/who-a-" + c.suite.run)
				shard := "who-a-" + c.suite.run
				for _, other := range []string{"who-b", "", shard + "x"} {
					_, err := c.sendBy(a, request{kind: lifecycle.Create, machine: id, fence: fence{other, 9, 9}})
					denied(c, "shard_id "+other, err)
				}
				_, err := c.sendBy(a, request{kind: lifecycle.Create, machine: id})
				denied(c, "without shard_id and token", err)
				b := c.as("bigfleet://shard/who-b")
				_, err = c.sendBy(b, request{kind: lifecycle.Create, machine: id, fence: fence{"who-b", c.suite.epoch, 1}})
				c.check(codeOf(err) != connect.CodeFailedPrecondition && codeOf(err) != connect.CodePermissionDenied, "a rejected call changed another shard's mark: %v", err)
				_, err = c.sendBy(a, request{kind: lifecycle.Create, machine: id, fence: fence{shard, 1, 1}})
				c.check(codeOf(err) != connect.CodePermissionDenied && codeOf(err) != connect.CodeFailedPrecondition, "with its own shard_id: %v", err)
				_, err = a.List(c.ctx, connect.NewRequest(&filter{MaxResults: 1}))
				c.check(err == nil, "List: %v", err)
			}),
		},
		{
			name: "who/readers", profile: Core, hosts: 1, clauses: []string{"PROV-2.8"},
			says: "let bigfleet://readonly and bigfleet://admin read, but not mutate",
			do: needsCerts(func(c *Case) {
				id := c.host()
				before := c.get(id)
				for _, san := range []string{"bigfleet://readonly", "bigfleet://admin"} {
					client := c.as(san)
					_, err := client.Get(c.ctx, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
					c.check(err == nil, "%s, Get: %v", san, err)
					_, err = client.List(c.ctx, connect.NewRequest(&filter{MaxResults: 1}))
					c.check(err == nil, "%s, List: %v", san, err)
					for _, k := range lifecycle.Kinds() {
						_, err := c.sendBy(client, c.ordinary(k, id, fence{"x", 1, 1}))
						denied(c, san+", "+k.String(), err)
					}
				}
				c.same("a refused mutation", before)
			}),
		},
		{
			name: "who/nobody", profile: Core, clauses: []string{"PROV-2.6"},
			says: "reject each call whose certificate has no bigfleet:// SAN, several or an unknown one",
			do: needsCerts(func(c *Case) {
				for _, sans := range [][]string{nil, {"bigfleet://shard/a", "bigfleet://shard/b"}, {"bigfleet://owner/a"}, {"bigfleet://cluster/red"}} {
					client := c.as(sans...)
					_, err := client.List(c.ctx, connect.NewRequest(&filter{MaxResults: 1}))
					denied(c, "List", err)
					_, err = client.Get(c.ctx, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: "x"}))
					denied(c, "Get", err)
					_, err = c.sendBy(client, c.ordinary(lifecycle.Create, "x", fence{"a", 1, 1}))
					denied(c, "Create", err)
				}
			}),
		},
		{
			name: "who/transport", profile: Core, clauses: []string{"PROV-2.1", "PROV-1.3", "PROV-1.2"},
			says: "serve gRPC over HTTP/2 on the port, also without TLS when it runs in plaintext",
			do: func(c *Case) {
				_, err := c.another().List(c.ctx, connect.NewRequest(&filter{MaxResults: 1}))
				c.check(err == nil, "List on a new connection: %v", err)
				if c.TLS == nil {
					return
				}
				old := c.TLS.Clone()
				old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
				h := &http.Client{Transport: &http.Transport{TLSClientConfig: old}, Timeout: 10 * time.Second}
				defer h.CloseIdleConnections()
				if _, err := h.Get("https://" + c.suite.dialer.addr); err == nil {
					c.check(c.Hooks.Certs == nil, "TLS 1.2 is accepted")
				}
			},
		},
	}
}
