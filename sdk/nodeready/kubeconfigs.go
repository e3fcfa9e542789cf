package nodeready

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig is one file, and which of its contexts.
type Kubeconfig struct {
	File    string
	Context string // empty: the current one
}

// Kubeconfigs names the clusters that can be reached (PROV-27.2): by id in Clusters, else by a file in Dir, else Default.
type Kubeconfigs struct {
	Clusters map[string]Kubeconfig
	// Dir holds a file per cluster: the cluster id, with or without .yaml or .kubeconfig; for an id that is no file name,
	// FileName.
	Dir     string
	Default Kubeconfig
}

// FileName is the name under which a cluster's file may stand in Dir whatever its id looks like: 32 hex digits of the
// SHA-256 of the id.
func FileName(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return hex.EncodeToString(sum[:16])
}

// find returns the file of a cluster and when it was last changed.
func (k Kubeconfigs) find(cluster string) (Kubeconfig, time.Time, error) {
	if c, ok := k.Clusters[cluster]; ok {
		at, err := changed(c.File)
		if err != nil {
			return c, at, fmt.Errorf("cluster %q: kubeconfig %s: %w", cluster, c.File, err)
		}
		return c, at, nil
	}
	if k.Dir != "" {
		names := []string{FileName(cluster)}
		if plain := !strings.ContainsAny(cluster, `/\`) && !strings.HasPrefix(cluster, "."); plain {
			names = []string{cluster, cluster + ".yaml", cluster + ".kubeconfig", names[0]}
		}
		for _, name := range names {
			file := filepath.Join(k.Dir, name)
			if at, err := changed(file); err == nil {
				return Kubeconfig{File: file}, at, nil
			}
		}
	}
	if k.Default.File != "" {
		at, err := changed(k.Default.File)
		if err != nil {
			return k.Default, at, fmt.Errorf("cluster %q is configured nowhere else, and the default kubeconfig %s: %w", cluster, k.Default.File, err)
		}
		return k.Default, at, nil
	}
	where := "the configuration"
	if k.Dir != "" {
		where += " nor in " + k.Dir
	}
	return Kubeconfig{}, time.Time{}, fmt.Errorf("cluster %q has no kubeconfig: it is not in %s, and there is no default", cluster, where)
}

func changed(file string) (time.Time, error) {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}, err
	}
	if info.IsDir() {
		return time.Time{}, fmt.Errorf("%s is a directory", file)
	}
	return info.ModTime(), nil
}

// Find implements Clusters. The version changes with the file.
func (k Kubeconfigs) Find(cluster string) (version string, err error) {
	c, at, err := k.find(cluster)
	if err != nil {
		return "", err
	}
	return c.File + "\x00" + c.Context + "\x00" + at.UTC().Format(time.RFC3339Nano), nil
}

// Config implements Clusters.
func (k Kubeconfigs) Config(cluster string) (*rest.Config, error) {
	c, _, err := k.find(cluster)
	if err != nil {
		return nil, err
	}
	config, err := c.load()
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", cluster, err)
	}
	return config, nil
}

// Check says why a kubeconfig cannot be used now.
func Check(c Kubeconfig) error {
	_, err := c.load()
	return err
}

func (c Kubeconfig) load() (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.File}, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", c.File, err)
	}
	return config, nil
}

// Clusters says how to reach clusters. Kubeconfigs is one; RESTConfigs another.
type Clusters interface {
	// Find answers at once: an error when the cluster is not known, else a version that changes when the way to reach it
	// does.
	Find(cluster string) (version string, err error)
	// Config returns how to reach it.
	Config(cluster string) (*rest.Config, error)
	// Names lists the clusters that are named now; others may be known too. "" is the default of all.
	Names() []string
}

// RESTConfigs is a fixed set of clusters, for programs that hold their clients already.
type RESTConfigs map[string]*rest.Config

// Find implements Clusters.
func (r RESTConfigs) Find(cluster string) (string, error) {
	if r[cluster] == nil {
		return "", fmt.Errorf("cluster %q is not known here", cluster)
	}
	return cluster, nil
}

// Config implements Clusters.
func (r RESTConfigs) Config(cluster string) (*rest.Config, error) {
	if _, err := r.Find(cluster); err != nil {
		return nil, err
	}
	return rest.CopyConfig(r[cluster]), nil
}

// Names lists the clusters that are named now: those of the map and of the plain file names in Dir, and "" for the
// default. A file under FileName tells no name.
func (k Kubeconfigs) Names() []string {
	names := slices.Collect(maps.Keys(k.Clusters))
	if k.Dir != "" {
		entries, _ := os.ReadDir(k.Dir) // an unreadable directory names nothing; find says what is wrong with it
		for _, e := range entries {
			name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".yaml"), ".kubeconfig")
			if _, err := hex.DecodeString(name); e.IsDir() || strings.HasPrefix(name, ".") || err == nil && len(name) == 32 {
				continue
			}
			names = append(names, name)
		}
	}
	if k.Default.File != "" {
		names = append(names, "")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Names lists the clusters.
func (r RESTConfigs) Names() []string { return slices.Sorted(maps.Keys(r)) }
