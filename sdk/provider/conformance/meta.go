package conformance

import (
	"fmt"
	"maps"
	"strings"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// hostile is a map with everything that a careless store would change.
func hostile() map[string]string {
	return map[string]string{
		"": "empty key", "empty value": "", "nul\x00key": "nul\x00value", "control\x01\x1b": "\r\n\t", "multi-byte é漢🙂": "مرحبا\u202e",
		"bigfleet.lucy.sh/assigned-need-fingerprint": "fp:\x00/=+&?", "UPPER": "upper", "upper": "UPPER", " space ": " x ", "{json}": `{"a":[1,2]}`,
		"a.b/c-d_e": strings.Repeat("long", 500), strings.Repeat("k", 300): "long key", "<xml>&amp;": "<![CDATA[]]>", "'; DROP TABLE": "--", "null": "null",
	}
}

// sameMetadata compares byte for byte.
func (c *Case) sameMetadata(where string, want map[string]string, m *machine) {
	got := m.GetShardMetadata()
	if maps.Equal(want, got) {
		return
	}
	for k, v := range want {
		g, there := got[k]
		if !there {
			c.check(false, "%s: key %s is missing", where, short(fmt.Sprintf("%q", k)))
		} else if g != v {
			c.check(false, "%s: key %s has %d bytes, but %d were sent: %s", where, short(fmt.Sprintf("%q", k)), len(g), len(v), short(fmt.Sprintf("%q", g)))
		}
	}
	for k := range got {
		if _, wanted := want[k]; !wanted {
			c.check(false, "%s: key %s was never sent", where, short(fmt.Sprintf("%q", k)))
		}
	}
}

func metaBehaviours() []behaviour {
	return []behaviour{
		{
			name: "meta/echo", profile: Core, hosts: 1, clauses: []string{"PROV-8.1", "PROV-8.2", "PROV-1.6"},
			says: "return shard_metadata byte for byte, with NUL, empty values and any key, in the ack and in each Get and List",
			do: func(c *Case) {
				id, want := c.host(), hostile()
				a := c.mustConfigure(id, c.Clusters[0], want)
				c.sameMetadata("the ack", want, a.GetMachine())
				c.sameMetadata("Get", want, c.get(id))
				c.sameMetadata("List", want, c.listed(id))
				a, err := c.drain(id, 0)
				if err != nil {
					c.failf("Drain: %v", err)
				}
				c.sameMetadata("the ack of Drain", want, a.GetMachine())
				c.settles(id, lifecycle.Drain)
			},
		},
		{
			name: "meta/size", profile: Core, hosts: 1, clauses: []string{"PROV-8.2", "PROV-8.6"},
			says: "store 8 KiB of metadata in 16 keys completely, and a value of 256 KiB completely or not at all",
			do: func(c *Case) {
				id, want := c.host(), map[string]string{}
				for i := range 16 {
					want[fmt.Sprintf("key-%02d", i)] = strings.Repeat(string(rune('a'+i)), 500)
				}
				c.mustConfigure(id, c.Clusters[0], want)
				c.sameMetadata("Get", want, c.get(id))
				c.mustDrain(id)
				want = map[string]string{"large": strings.Repeat("x", 256<<10), "small": "y"}
				before := c.get(id)
				if _, err := c.configure(id, c.Clusters[0], want); err != nil {
					c.refused("Configure with 256 KiB of metadata", before, err)
					return
				}
				c.sameMetadata("Get", want, c.settles(id, lifecycle.Configure))
			},
		},
		{
			name: "meta/clear", profile: Core, hosts: 1, clauses: []string{"PROV-8.4", "PROV-3.8"},
			says: "clear cluster and metadata together when the machine reaches IDLE, and not before",
			do: func(c *Case) {
				id := c.host()
				c.mustConfigure(id, c.Clusters[0], map[string]string{"k": "v"})
				c.slowIfPossible("Drain", id)
				ack, err := c.drain(id, 0)
				if err != nil {
					c.failf("Drain: %v", err)
				}
				for m := ack.GetMachine(); ; m = c.get(id) {
					cluster, keys := m.GetCluster(), len(m.GetShardMetadata())
					switch m.GetState() {
					case draining:
						c.check(cluster == c.Clusters[0] && keys == 1, "DRAINING shows cluster %q and %d keys", cluster, keys)
						continue
					case idle:
						c.check(cluster == "" && keys == 0, "IDLE shows cluster %q and %d keys", cluster, keys)
					default:
						c.failf("%s after Drain: %s", name(m.GetState()), m.GetLastError())
					}
					return
				}
			},
		},
		{
			name: "meta/replace", profile: Core, hosts: 1, clauses: []string{"PROV-8.5"},
			says: "replace all metadata with the next Configure, and keep no old key",
			do: func(c *Case) {
				id := c.host()
				for _, want := range []map[string]string{{"a": "1", "b": "2"}, {"c": "3"}, {}, {"a": "4"}} {
					c.mustConfigure(id, c.Clusters[0], want)
					c.sameMetadata("Get", want, c.get(id))
					c.mustDrain(id)
				}
			},
		},
		{
			name: "meta/apart", profile: Core, hosts: 3, clauses: []string{"PROV-13.3", "PROV-8.3"},
			says: "keep the metadata of different machines separate",
			do: func(c *Case) {
				for i, id := range c.idles(3) {
					c.mustConfigure(id, c.Clusters[i%2], map[string]string{"mine": id, fmt.Sprint(i): "x"})
				}
				for id := range c.taken {
					m := c.get(id)
					c.check(m.GetShardMetadata()["mine"] == id && len(m.GetShardMetadata()) == 2, "%s shows the metadata of %q", id, m.GetShardMetadata()["mine"])
				}
			},
		},
		{
			name: "meta/random", profile: Core, hosts: 1, clauses: []string{"PROV-8.2", "PROV-8.5"},
			says: "return random metadata unchanged",
			do: func(c *Case) {
				id := c.host()
				for range 6 {
					want := map[string]string{}
					for range c.random.IntN(20) {
						want[c.text(40)] = c.text(200)
					}
					c.mustConfigure(id, c.Clusters[c.random.IntN(2)], want)
					c.sameMetadata("Get", want, c.get(id))
					c.sameMetadata("List", want, c.listed(id))
					c.mustDrain(id)
				}
			},
		},
		{
			name: "meta/secret-stays-secret", profile: Core, hosts: 1, clauses: []string{"PROV-8.8"},
			says: "show the boot data in no record",
			do: func(c *Case) {
				id, secret := c.host(), "secret-"+c.suite.run+"-4711"
				if _, err := c.send(request{kind: lifecycle.Configure, machine: id, fence: c.fresh(), cluster: c.Clusters[0], blob: []byte(secret)}); err != nil {
					c.failf("Configure: %v", err)
				}
				m := c.ends(id, lifecycle.Configure, c.Settle)
				c.check(!strings.Contains(m.String(), secret) && !strings.Contains(c.listed(id).String(), secret), "the boot data is in the record")
			},
		},
	}
}

// listed finds a machine in a full list.
func (c *Case) listed(id string) *machine {
	for _, m := range c.list(&bigfleetv1alpha1.ListFilter{}).GetMachines() {
		if m.GetId() == id {
			return m
		}
	}
	c.failf("%s is not in the list", id)
	return nil
}
