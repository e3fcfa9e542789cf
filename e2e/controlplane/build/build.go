// Package build compiles the programs of a Kubernetes control plane from their Go modules, once per machine.
//
// Ensure returns the paths of kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, etcd and kwok, and
// builds what is missing; EnsureKubelet does so for the kubelet. No image, no download other than Go modules, no prebuilt binary: the versions are pinned in
// recipe.go, and every dependency by checksum in modules/*/go.mod.txt and go.sum.txt, which are written to a temporary
// directory and built there. They do not end in .mod and .sum so that Go does not take them for modules of ours.
//
// Results live in the harness cache (package cache), in one directory per module whose name carries the version, the
// Go release and the platform, and a hash of everything else that shaped it. A directory is complete or absent. Several
// processes may call Ensure at once: one builds, the others wait. A cold build of everything takes 13 minutes of
// processor time, so 7 minutes on two idle cores.
//
// It never starts a program it built; package controlplane does. Start at Ensure, then recipe.go.
package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bigfleet-dev/bigfleet/e2e/cache"
)

// Config says where to build and whom to tell.
type Config struct {
	CacheDir string    // "" means "controlplane" in the harness cache
	Progress io.Writer // receives one line per step of a build; nil discards them. A warm Ensure writes nothing
}

// Binaries are the paths of what Ensure built.
type Binaries struct {
	APIServer         string
	ControllerManager string
	Scheduler         string
	Kubectl           string
	Etcd              string
	Kwok              string
	KwokStages        string // one YAML file with kwok's stages: fast Nodes and Pods, heartbeats by lease
}

// Ensure returns the binaries and builds those that the cache lacks.
func Ensure(ctx context.Context, c Config) (Binaries, error) {
	b, err := newBuilder(ctx, c)
	if err != nil {
		return Binaries{}, err
	}
	dirs := map[string]string{}
	for _, r := range recipes() {
		if dirs[r.name], err = b.ensure(ctx, r); err != nil {
			return Binaries{}, err
		}
	}
	kubernetes, etcd, kwok := dirs["kubernetes"], dirs["etcd"], dirs["kwok"]
	return Binaries{
		APIServer:         filepath.Join(kubernetes, "kube-apiserver"),
		ControllerManager: filepath.Join(kubernetes, "kube-controller-manager"),
		Scheduler:         filepath.Join(kubernetes, "kube-scheduler"),
		Kubectl:           filepath.Join(kubernetes, "kubectl"),
		Etcd:              filepath.Join(etcd, "etcd"),
		Kwok:              filepath.Join(kwok, "kwok"),
		KwokStages:        filepath.Join(kwok, stagesFile),
	}, nil
}

// EnsureKubelet returns the path of a kubelet of the same version, and builds it if the cache lacks it.
func EnsureKubelet(ctx context.Context, c Config) (string, error) {
	b, err := newBuilder(ctx, c)
	if err != nil {
		return "", err
	}
	dir, err := b.ensure(ctx, kubeletRecipe())
	return filepath.Join(dir, "kubelet"), err
}

// builder is one call of Ensure.
type builder struct {
	cacheDir  string
	progress  io.Writer
	goVersion string
	platform  string
	goCache   string // where the compiler's own cache grows, for the check of free space
	bytesNeed uint64 // free space that a build needs
}

func newBuilder(ctx context.Context, c Config) (*builder, error) {
	b := &builder{cacheDir: c.CacheDir, progress: c.Progress, bytesNeed: coldBuildBytes}
	if b.progress == nil {
		b.progress = io.Discard
	}
	if b.cacheDir == "" {
		root, err := cache.Root()
		if err != nil {
			return nil, err
		}
		b.cacheDir = filepath.Join(root, "controlplane")
	}
	tool, err := goEnv(ctx)
	if err != nil {
		return nil, err
	}
	b.goVersion, b.platform, b.goCache = tool.GOVERSION, tool.GOOS+"-"+tool.GOARCH, tool.GOCACHE
	return b, nil
}

// ensure returns the directory with what r makes.
func (b *builder) ensure(ctx context.Context, r recipe) (string, error) {
	key, err := r.key(b.goVersion, b.platform)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.cacheDir, key)
	if isDir(dir) {
		return dir, nil
	}
	release, err := cache.Lock(ctx, dir+".lock", func() {
		b.say("%s: waiting for another process that builds it", r)
	})
	if err != nil {
		return "", err
	}
	defer release()
	if isDir(dir) { // built while we waited
		return dir, nil
	}
	if err := b.build(ctx, r, dir); err != nil {
		return "", fmt.Errorf("build %s: %w", r, err)
	}
	return dir, nil
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "build: "+format+"\n", args...)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
