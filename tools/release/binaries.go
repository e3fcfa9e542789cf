package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programs are the packages that become binaries, as directories of the released tree.
var programs = []string{
	"services/bigfleet",
	"services/coordinator/cmd/bigfleet-coordinator",
	"services/operator/cmd/bigfleet-operator",
	"services/podcontroller/cmd/bigfleet-podcontroller",
	"services/providers/aws/cmd/bigfleet-provider-aws",
	"services/providers/clusterapi/cmd/bigfleet-provider-clusterapi",
	"services/providers/hosts/cmd/bigfleet-hostagent",
	"services/providers/hosts/cmd/bigfleet-provider-hosts",
	"services/providers/kwok/cmd/bigfleet-provider-kwok",
	"services/providers/sim/cmd/bigfleet-provider-sim",
	"services/shard/cmd/bigfleet-shard",
}

var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

// writeBinaries builds the programs from the released modules, as somebody who installs them by version would.
func (p *plan) writeBinaries(tree string) error {
	commit, err := p.git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	bin := filepath.Join(p.out, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	if p.programs != "" {
		return p.takePrograms(bin)
	}
	flags := fmt.Sprintf("-s -w -X %[1]s.version=%[2]s -X %[1]s.commit=%[3]s", prefix+"services/kit/telemetry", p.version, strings.TrimSpace(commit))
	for _, platform := range p.platforms {
		system, arch, _ := strings.Cut(platform, "/")
		for _, program := range programs {
			name := filepath.Join(bin, fmt.Sprintf("%s_%s_%s_%s", filepath.Base(program), p.version, system, arch))
			c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", name, ".")
			c.Dir = filepath.Join(tree, filepath.FromSlash(program))
			c.Env = append(os.Environ(), p.proxyEnv(tree)...)
			c.Env = append(c.Env, "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOWORK=off")
			c.Stderr = os.Stderr
			if err := c.Run(); err != nil {
				return fmt.Errorf("build %s for %s: %w", program, platform, err)
			}
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			fmt.Printf("%s %.1f MB\n", filepath.Base(name), float64(info.Size())/1e6)
		}
	}
	return nil
}

// takePrograms copies programs that were built before, those that are there, under the names of the release.
func (p *plan) takePrograms(bin string) error {
	for _, program := range programs {
		name := filepath.Base(program)
		to := fmt.Sprintf("%s_%s_%s", name, p.version, strings.ReplaceAll(p.platforms[0], "/", "_"))
		if err := copyFile(filepath.Join(p.programs, name), filepath.Join(bin, to)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// proxyEnv makes the go command find the released modules in -out and all others where it found them before: in its cache, which
// has the layout of a proxy, or behind it. What it fetches goes into a cache of this run. In the usual one, the modules of a dry run would
// stand in the way of the release that has the same version.
func (p *plan) proxyEnv(tree string) []string {
	file := func(dir string) string { return "file://" + filepath.ToSlash(dir) }
	return []string{"GOMODCACHE=" + filepath.Join(tree, ".modules"), "GOFLAGS=-mod=mod -modcacherw",
		"GOPROXY=" + file(filepath.Join(p.out, "proxy")) + "," + file(filepath.Join(goEnv("GOMODCACHE"), "cache", "download")) + "," + goEnv("GOPROXY"),
		"GONOSUMDB=" + strings.TrimSuffix(prefix, "/") + "/*," + goEnv("GONOSUMDB")}
}

func goEnv(name string) string {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// writeSums writes SHA256SUMS in the form that sha256sum checks.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), e.Name()))
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
