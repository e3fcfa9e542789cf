package build

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// The versions of the control plane. modules/*/go.mod.txt must agree; a test compares them.
const (
	KubernetesVersion = "v1.36.3"
	EtcdVersion       = "v3.7.3"
	KwokVersion       = "v0.8.0"

	// stagingVersion is what k8s.io/kubernetes calls its own libraries at KubernetesVersion.
	stagingVersion = "v0.36.3"
)

// stagesFile is the name of the kwok configuration in kwok's directory of the cache.
const stagesFile = "stages.yaml"

//go:embed modules
var modules embed.FS

// recipe says how to build the programs of one module.
type recipe struct {
	name     string // of the directory under modules, and in the cache key
	module   string // the Go module
	version  string // of the module
	files    fs.FS  // holds go.mod.txt and go.sum.txt
	programs []program
	ldflags  []string
	stages   []string // files of the module, concatenated into stagesFile; none for most
}

// program is one main package and the name of its binary.
type program struct{ binary, importPath string }

func (r recipe) String() string { return r.name + " " + r.version }

// recipes lists everything that Ensure builds.
func recipes() []recipe {
	return []recipe{{
		name: "etcd", module: "go.etcd.io/etcd/server/v3", version: EtcdVersion, files: moduleFiles("etcd"),
		programs: []program{{"etcd", "go.etcd.io/etcd/server/v3"}},
	}, {
		name: "kwok", module: "sigs.k8s.io/kwok", version: KwokVersion, files: moduleFiles("kwok"),
		programs: []program{{"kwok", "sigs.k8s.io/kwok/cmd/kwok"}},
		ldflags:  []string{"-X=sigs.k8s.io/kwok/pkg/consts.Version=" + KwokVersion},
		stages: []string{
			"kustomize/stage/node/fast/node-initialize.yaml",
			"kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
			"kustomize/stage/pod/fast/pod-ready.yaml",
			"kustomize/stage/pod/fast/pod-complete.yaml",
			"kustomize/stage/pod/fast/pod-delete.yaml",
		},
	}, {
		name: "kubernetes", module: "k8s.io/kubernetes", version: KubernetesVersion, files: moduleFiles("kubernetes"),
		programs: []program{
			{"kube-apiserver", cmd + "kube-apiserver"},
			{"kube-controller-manager", cmd + "kube-controller-manager"},
			{"kube-scheduler", cmd + "kube-scheduler"},
			{"kubectl", cmd + "kubectl"},
		},
		ldflags: kubernetesVersionFlags(),
	}}
}

// kubeletRecipe stands apart from recipes: only tests that start real nodes need a kubelet, and it takes minutes to build.
func kubeletRecipe() recipe {
	return recipe{
		name: "kubelet", module: "k8s.io/kubernetes", version: KubernetesVersion, files: moduleFiles("kubelet"),
		programs: []program{{"kubelet", cmd + "kubelet"}},
		ldflags:  kubernetesVersionFlags(),
	}
}

const cmd = "k8s.io/kubernetes/cmd/"

func kubernetesVersionFlags() []string {
	var k8sVersion []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		major, minor := majorMinor(KubernetesVersion)
		k8sVersion = append(k8sVersion,
			"-X="+pkg+".gitVersion="+KubernetesVersion, // clients and kubectl compare versions: the default is v0.0.0
			"-X="+pkg+".gitMajor="+major,
			"-X="+pkg+".gitMinor="+minor,
			"-X="+pkg+".gitTreeState=clean",
		)
	}
	return k8sVersion
}

func moduleFiles(name string) fs.FS {
	sub, err := fs.Sub(modules, path.Join("modules", name))
	if err != nil {
		panic(err) // only for a name that is not a valid path: the names above are constants
	}
	return sub
}

func majorMinor(version string) (major, minor string) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return parts[0], parts[1]
}

// linkFlags drops symbol tables and debug information: the binaries are half the size and these programs are not debugged.
func (r recipe) linkFlags() string {
	return strings.Join(append([]string{"-s", "-w"}, r.ldflags...), " ")
}

// key names what r makes. Anything that changes the result changes the key.
func (r recipe) key(goVersion, platform string) (string, error) {
	h := sha256.New()
	for _, file := range []string{"go.mod.txt", "go.sum.txt"} {
		content, err := fs.ReadFile(r.files, file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", file, len(content), content)
	}
	fmt.Fprintln(h, r.programs, r.linkFlags(), r.stages, buildFlags(), buildEnv())
	return strings.Join([]string{r.name, r.version, strings.ReplaceAll(goVersion, " ", "_"), platform, hex.EncodeToString(h.Sum(nil)[:6])}, "-"), nil
}
