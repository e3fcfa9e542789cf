package agent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// memory is what the clean host looked like.
type memory struct {
	Links    []string          `json:"links"`
	Mounts   []string          `json:"mounts"`
	Plugins  map[string]string `json:"plugins"` // path to digest
	Firewall map[string]string `json:"firewall,omitempty"`
}

func (l *Linux) memoryFile() string { return filepath.Join(l.StateDir, "clean.json") }

// Remember implements Host.
func (l *Linux) Remember(ctx context.Context) error {
	if _, err := os.Stat(l.memoryFile()); err == nil {
		return nil // of the same binding, before the agent was killed
	}
	m := memory{Plugins: map[string]string{}, Firewall: map[string]string{}}
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, link := range links {
		m.Links = append(m.Links, link.Name)
	}
	if m.Mounts, err = mounts(); err != nil {
		return err
	}
	if m.Plugins, err = digests(l.pluginDir()); err != nil {
		return err
	}
	for _, tool := range firewalls() {
		text, err := exec.CommandContext(ctx, tool+"-save").Output()
		if err != nil {
			return fmt.Errorf("%s-save: %w", tool, err)
		}
		m.Firewall[tool] = string(text)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return replaceFile(l.memoryFile(), text, 0o600)
}

// Forget implements Host.
func (l *Linux) Forget(context.Context) error {
	if err := os.Remove(l.memoryFile()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// remembered is empty when nothing was noted: a reset at the console of a host that the agent did not configure.
func (l *Linux) remembered() (m memory) {
	if text, err := os.ReadFile(l.memoryFile()); err == nil {
		_ = json.Unmarshal(text, &m) // damaged: as if nothing was noted, and the look decides
	}
	return m
}

func (l *Linux) pluginDir() string {
	if l.PluginDir == "" {
		return "/opt/cni/bin"
	}
	return l.PluginDir
}

func digests(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		sum := sha256.Sum256(text)
		out[name] = hex.EncodeToString(sum[:])
		return err
	})
	return out, err
}

// plugins compares the CNI plugins with those of the clean host. Without a memory nothing is known, and nothing is removed.
func (l *Linux) plugins() (added, changed []string, err error) {
	before := l.remembered()
	if before.Plugins == nil {
		return nil, nil, nil
	}
	now, err := digests(l.pluginDir())
	for name, sum := range now {
		switch known, there := before.Plugins[name]; {
		case !there:
			added = append(added, name)
		case known != sum:
			changed = append(changed, name)
		}
	}
	slices.Sort(added)
	slices.Sort(changed)
	return added, changed, err
}

// Look implements Host.
func (l *Linux) Look(ctx context.Context) (left []string, err error) {
	kubelet, runtime := l.Runs()
	if kubelet {
		left = append(left, "process kubelet")
	}
	if runtime {
		left = append(left, "process containerd")
	}
	for what, find := range map[string]func() []int{"shim": shims, "container": l.podProcesses} {
		for _, pid := range find() {
			left = append(left, fmt.Sprintf("process %d of a %s", pid, what))
		}
	}
	points, err := l.tenantMounts()
	if err != nil {
		return nil, err
	}
	for _, point := range points {
		left = append(left, "mount "+point)
	}
	for _, dir := range tenant {
		if err := l.files(l.at(dir), &left); err != nil {
			return nil, err
		}
	}
	_, changed, err := l.plugins()
	if err != nil {
		return nil, err
	}
	for _, name := range changed {
		left = append(left, "changed CNI plugin "+name)
	}
	for _, name := range l.addedLinks() {
		left = append(left, "network link "+name)
	}
	rules, err := tenantRules(ctx)
	slices.Sort(left)
	return append(left, rules...), err
}

// files lists what is in a directory, but for the host's own mounts.
func (l *Linux) files(dir string, left *[]string) error {
	own := l.remembered().Mounts
	if own == nil {
		own, _ = mounts()
	}
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil:
			return err
		case name == dir, slices.ContainsFunc(own, func(m string) bool { return m == name || strings.HasPrefix(m, name+"/") }):
			return nil
		case e.IsDir():
			*left = append(*left, "directory "+name)
			return fs.SkipDir
		}
		*left = append(*left, "file "+name)
		return nil
	})
}

// mounts lists mount points in the order in which they were made.
func mounts() (points []string, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			points = append(points, strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4]))
		}
	}
	return points, lines.Err()
}

// tenantMounts are the mounts that the clean host did not have.
func (l *Linux) tenantMounts() (out []string, err error) {
	all, err := mounts()
	own := l.remembered().Mounts
	for _, point := range all {
		inside := slices.ContainsFunc(tenant, func(dir string) bool { return strings.HasPrefix(point, dir+"/") }) || strings.HasPrefix(point, "/run/netns/cni-")
		if inside && !slices.Contains(own, point) {
			out = append(out, point)
		}
	}
	return out, err
}
