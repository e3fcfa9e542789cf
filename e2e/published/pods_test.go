package published

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/charts"
	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// certManager are the kinds of cert-manager that a section of docs/production.md writes.
const certManager = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificates.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {plural: certificates, singular: certificate, kind: Certificate}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: issuers.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {plural: issuers, singular: issuer, kind: Issuer}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// pods plays kubelets for one control plane. Each name and port of the cluster is a port of this machine.
type pods struct {
	t        *testing.T
	cp       *controlplane.ControlPlane
	registry string
	ran      map[string]bool // Jobs

	mu    sync.Mutex
	ports map[string]*loopback.Port
	roots map[string]string // content by image
}

var clusterAddress = regexp.MustCompile(`[a-z0-9-]+(\.[a-z0-9-]+)*\.svc:[0-9]+`)

// at is where an address of the cluster is on this machine.
func (p *pods) at(address string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ports[address] == nil {
		port, err := loopback.Reserve()
		if err != nil {
			p.t.Error(err)
			return ""
		}
		p.t.Cleanup(port.Release)
		p.ports[address] = port
	}
	return p.ports[address].Addr()
}

// shell runs a script as the reader does, with helm, kubectl and the command of the image.
func (p *pods) shell() func(script string) string {
	helm, err := charts.Helm(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	bin, home, dir := p.t.TempDir(), p.t.TempDir(), p.t.TempDir()
	command := filepath.Join(p.root("ghcr.io/bigfleet-dev/bigfleet:"+theRelease(p.t).version), "usr", "bin", "bigfleet")
	for link, to := range map[string]string{"helm": helm, "kubectl": p.cp.Kubectl(), "bigfleet": command} {
		if err := os.Symlink(to, filepath.Join(bin, link)); err != nil {
			p.t.Fatal(err)
		}
	}
	return func(script string) string {
		p.t.Helper()
		script = strings.ReplaceAll(script, " oci://ghcr.io/", " --plain-http oci://"+p.registry+"/")
		cmd := exec.CommandContext(p.t.Context(), "bash", "-c", "set -euxo pipefail\n"+script)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "KUBECONFIG=" + p.cp.Kubeconfig(), "HOME=" + home}
		out, err := cmd.CombinedOutput()
		if err != nil {
			p.t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
}

// runJobs runs every Job that has not run yet, with the rights of its service account. This machine's address is added to the names of each
// certificate that is asked for.
func (p *pods) runJobs() {
	p.t.Helper()
	jobs, err := p.cp.Client().BatchV1().Jobs(namespace).List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, job := range jobs.Items {
		if p.ran[job.Name] {
			continue
		}
		p.ran[job.Name] = true
		spec := job.Spec.Template.Spec
		kubeconfig, err := p.cp.UserKubeconfig("system:serviceaccount:"+namespace+":"+spec.ServiceAccountName, "system:serviceaccounts", "system:authenticated")
		if err != nil {
			p.t.Fatal(err)
		}
		entry, err := p.entry(spec.Containers[0].Image)
		if err != nil {
			p.t.Fatal(err)
		}
		args := entry[1:]
		for _, a := range spec.Containers[0].Args {
			if strings.HasPrefix(a, "--secret=") {
				a += ",127.0.0.1"
			}
			args = append(args, a)
		}
		p.t.Logf("%s", run(p.t, p.t.TempDir(), []string{"KUBECONFIG=" + kubeconfig}, entry[0], args...))
	}
}

// startAll runs the Pods of every StatefulSet, the provider's first, then the console's, and returns when each is ready.
func (p *pods) startAll() {
	p.t.Helper()
	sets, err := p.cp.Client().AppsV1().StatefulSets(namespace).List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	slices.SortFunc(sets.Items, func(a, b appsv1.StatefulSet) int { return cmp.Compare(rank(a.Name), rank(b.Name)) })
	for _, set := range sets.Items {
		started := make(chan error, *set.Spec.Replicas)
		for i := range *set.Spec.Replicas {
			go func() { started <- p.start(&set, int(i)) }()
		}
		for range *set.Spec.Replicas {
			if err := <-started; err != nil {
				p.t.Fatal(err)
			}
		}
	}
	if len(sets.Items) != 3 {
		p.t.Fatalf("%d StatefulSets, want those of provider, coordinators and shards", len(sets.Items))
	}
	console, err := p.cp.Client().AppsV1().Deployments(namespace).Get(p.t.Context(), "bigfleet-console", metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.run(console.Spec.Template.Spec, console.Name, console.Name+"."+namespace+".svc"); err != nil {
		p.t.Fatal(err)
	}
}

func rank(name string) int {
	return slices.Index([]string{"bigfleet-provider-sim", "bigfleet-coordinator", "bigfleet-shard"}, name)
}

// start runs one Pod from its image until the test ends and waits until it is ready.
func (p *pods) start(s *appsv1.StatefulSet, ordinal int) error {
	pod := fmt.Sprintf("%s-%d", s.Name, ordinal)
	host := pod + "." + s.Spec.ServiceName + "." + s.Namespace + ".svc"
	if *s.Spec.Replicas == 1 { // dialled by the name of its Service
		host = s.Spec.ServiceName + "." + s.Namespace + ".svc"
	}
	return p.run(s.Spec.Template.Spec, pod, host)
}

// run starts a Pod whose ports are those of host.
func (p *pods) run(spec corev1.PodSpec, pod, host string) error {
	c := spec.Containers[0]
	dirs, err := p.volumes(spec)
	if err != nil {
		return err
	}
	names := strings.NewReplacer("$(POD_NAME)", pod, "$(POD_NAMESPACE)", namespace)
	for _, first := range spec.InitContainers {
		if err := p.first(first, names, paths(first, dirs)); err != nil {
			return err
		}
	}
	mounts := paths(c, dirs)
	var metrics string
	var args []string
	for _, a := range c.Args {
		a = names.Replace(a)
		a = clusterAddress.ReplaceAllStringFunc(mounts.Replace(a), p.at)
		flag, value, _ := strings.Cut(a, "=")
		if strings.HasPrefix(value, ":") || flag == "--listen" { // a port of the Pod
			value = p.at(host + value[strings.LastIndex(value, ":"):])
			if flag == "--metrics-addr" {
				metrics = value
			}
			a = flag + "=" + value
		}
		args = append(args, a)
	}
	if strings.Contains(c.Image, "provider-sim") {
		args = append(args, "--sim-control-addr=off") // its port is fixed, and another may run on this machine
	}
	entry, err := p.entry(c.Image)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer cancel()
	process, err := proc.Start(ctx, proc.Config{Name: pod, Path: entry[0], Args: append(entry[1:], args...), LogFile: filepath.Join(p.t.TempDir(), "log"),
		Ready: proc.HTTP("http://"+metrics+c.ReadinessProbe.HTTPGet.Path, nil), ReadyTimeout: 3 * time.Minute})
	if err != nil {
		return err
	}
	p.t.Cleanup(func() { _ = process.Stop() })
	return nil
}

// first runs a container that ends before the others of its Pod start.
func (p *pods) first(c corev1.Container, names, mounts *strings.Replacer) error {
	entry, err := p.entry(c.Image)
	if err != nil {
		return err
	}
	args := entry[1:]
	for _, a := range c.Args {
		args = append(args, mounts.Replace(names.Replace(a)))
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, entry[0], args...).CombinedOutput(); err != nil { //nolint:gosec // the program under test
		return fmt.Errorf("container %s: %w: %s", c.Name, err, out)
	}
	return nil
}

// volumes makes a directory for each volume of a Pod, with the Secrets and ConfigMaps that it holds.
func (p *pods) volumes(spec corev1.PodSpec) (map[string]string, error) {
	dirs := map[string]string{}
	for _, v := range spec.Volumes {
		dirs[v.Name] = p.t.TempDir()
		files, err := p.volume(v)
		if err != nil {
			return nil, err
		}
		for name, data := range files {
			path := filepath.Join(dirs[v.Name], name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range spec.Containers { // what a StatefulSet claims is not among the volumes
		for _, m := range c.VolumeMounts {
			dirs[m.Name] = cmp.Or(dirs[m.Name], p.t.TempDir())
		}
	}
	return dirs, nil
}

// paths maps the paths of a container to the directories of its Pod's volumes.
func paths(c corev1.Container, dirs map[string]string) *strings.Replacer {
	var pairs []string
	for _, m := range c.VolumeMounts {
		pairs = append(pairs, m.MountPath, dirs[m.Name])
	}
	return strings.NewReplacer(pairs...)
}

// volume is the content of a volume that comes from the API server.
func (p *pods) volume(v corev1.Volume) (map[string][]byte, error) {
	api, files := p.cp.Client().CoreV1(), map[string][]byte{}
	switch {
	case v.ConfigMap != nil:
		m, err := api.ConfigMaps(namespace).Get(p.t.Context(), v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for name, text := range m.Data {
			files[name] = []byte(text)
		}
	case v.Secret != nil:
		s, err := api.Secrets(namespace).Get(p.t.Context(), v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return s.Data, nil
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			s, err := api.Secrets(namespace).Get(p.t.Context(), source.Secret.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			for _, item := range source.Secret.Items {
				files[item.Path] = s.Data[item.Key]
			}
		}
	}
	return files, nil
}

// entry is the entry point of an image of the registry, as a path into its unpacked content.
func (p *pods) entry(image string) ([]string, error) {
	pulled, err := p.pull(image)
	if err != nil {
		return nil, err
	}
	config, err := pulled.ConfigFile()
	if err != nil {
		return nil, err
	}
	if config.Config.User != "65532:65532" {
		return nil, fmt.Errorf("%s runs as %q", image, config.Config.User)
	}
	return append([]string{filepath.Join(p.root(image), config.Config.Entrypoint[0])}, config.Config.Entrypoint[1:]...), nil
}

func (p *pods) pull(image string) (v1.Image, error) {
	return remote.Image(reference(p.t, p.registry, image), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
}

// root is a directory with the content of an image.
func (p *pods) root(image string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roots[image] == "" {
		root := p.t.TempDir()
		pulled, err := p.pull(image)
		if err == nil {
			err = unpack(pulled, root)
		}
		if err != nil {
			p.t.Errorf("%s: %v", image, err)
		}
		p.roots[image] = root
	}
	return p.roots[image]
}

func unpack(image v1.Image, root string) error {
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(root, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(to, data, h.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			return err
		}
	}
}
