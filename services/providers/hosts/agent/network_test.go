package agent

import "testing"

const ownRules = `*filter
:INPUT DROP [0:0]
:OWN - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j OWN
COMMIT
`

// PROV-32.6: tables that a cluster added are emptied, and those of the host are left to what was noted.
func TestFirewallIsPutBack(t *testing.T) {
	now := ownRules + "*nat\n:POSTROUTING ACCEPT [1:2]\n:CNI-x - [0:0]\n-A POSTROUTING -j CNI-x\nCOMMIT\n"
	if got, want := emptied(now, ownRules), "*nat\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := emptied(ownRules, ownRules); got != "" {
		t.Errorf("nothing was added: %q", got)
	}
}

// PROV-32.6: without a memory of the clean host, chains of clusters go with the rules that name them, and the host's own stay.
func TestFirewallWithoutMemory(t *testing.T) {
	now := "*filter\n:INPUT DROP [0:0]\n:KUBE-FIREWALL - [0:0]\n:OWN - [0:0]\n-A INPUT -j KUBE-FIREWALL\n-A INPUT -p tcp -m tcp --dport 22 -j OWN\n" +
		"-A KUBE-FIREWALL -j DROP\nCOMMIT\n"
	if got := withoutTenant(now); got != ownRules {
		t.Errorf("got %q, want %q", got, ownRules)
	}
}
