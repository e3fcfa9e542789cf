package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// RestoreNetwork removes the links that the clean host did not have, and puts its firewall back.
func (l *Linux) RestoreNetwork(ctx context.Context) error {
	for _, name := range l.addedLinks() {
		// One that went with its peer is not an error; the look sees what stays.
		if err := run(ctx, "ip", "link", "delete", name); err != nil {
			l.Log.Debug("a network link cannot be removed yet", "link", name, "err", err)
		}
	}
	before := l.remembered()
	for _, tool := range firewalls() {
		now, err := exec.CommandContext(ctx, tool+"-save").Output()
		if err != nil {
			return fmt.Errorf("%s-save: %w", tool, err)
		}
		rules, known := before.Firewall[tool]
		if rules += emptied(string(now), rules); !known {
			rules = withoutTenant(string(now))
		}
		restore := exec.CommandContext(ctx, tool+"-restore")
		restore.Stdin = strings.NewReader(rules)
		if out, err := restore.CombinedOutput(); err != nil {
			return fmt.Errorf("%s-restore: %w: %.300s", tool, err, out)
		}
	}
	return nil
}

// emptied is an empty form of each table that stands in now and not in before: restoring before alone would leave it as it is.
func emptied(now, before string) string {
	var out strings.Builder
	keep, open := true, false
	for line := range strings.Lines(now) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			if keep = strings.Contains("\n"+before, "\n"+line+"\n"); !keep {
				out.WriteString(line + "\n")
				open = true
			}
		case strings.HasPrefix(line, ":") && !keep:
			if name, rest, _ := strings.Cut(line[1:], " "); !strings.HasPrefix(rest, "-") { // a built-in chain has a policy
				out.WriteString(":" + name + " ACCEPT [0:0]\n")
			}
		case line == "COMMIT" && open:
			out.WriteString("COMMIT\n")
			keep, open = true, false
		}
	}
	return out.String()
}

// tenantChains begin the names of chains that kube-proxy, kubelets and network plugins make.
var tenantChains = []string{"KUBE-", "CNI-", "cali-", "CILIUM_", "FLANNEL-"}

// withoutTenant takes every chain of a cluster out of saved rules, and every rule that names one.
func withoutTenant(now string) string {
	var out strings.Builder
	for line := range strings.Lines(now) {
		if !slices.ContainsFunc(strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ':' || r == '\n' }), func(word string) bool {
			return slices.ContainsFunc(tenantChains, func(p string) bool { return strings.HasPrefix(word, p) })
		}) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// addedLinks are virtual links that the clean host did not have. Without a memory nothing is known, and nothing is removed.
func (l *Linux) addedLinks() (out []string) {
	before := l.remembered()
	links, err := net.Interfaces()
	if err != nil || before.Links == nil {
		return nil
	}
	for _, link := range links {
		_, err := os.Stat(filepath.Join("/sys/class/net", link.Name, "device")) // hardware has one
		if errors.Is(err, os.ErrNotExist) && !slices.Contains(before.Links, link.Name) {
			out = append(out, link.Name)
		}
	}
	return out
}

// tenantRules are chains of kube-proxy and network plugins.
func tenantRules(ctx context.Context) (left []string, err error) {
	for _, tool := range firewalls() {
		text, err := exec.CommandContext(ctx, tool+"-save").Output()
		if err != nil {
			return nil, fmt.Errorf("%s-save: %w", tool, err)
		}
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, ":"), " ")
			if !strings.HasPrefix(line, ":") {
				continue
			}
			if slices.ContainsFunc(tenantChains, func(p string) bool { return strings.HasPrefix(name, p) }) {
				left = append(left, tool+" chain "+name)
			}
		}
	}
	return left, nil
}

// firewalls are the tools that this host has.
func firewalls() (out []string) {
	for _, tool := range []string{"iptables", "ip6tables"} {
		if _, err := exec.LookPath(tool + "-save"); err == nil {
			out = append(out, tool)
		}
	}
	return out
}

// run runs a program of the host, and returns what it said as the error.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.500s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
