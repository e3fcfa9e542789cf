package nodeready

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Config is what a Source needs.
type Config struct {
	Clusters Clusters     // required
	Log      *slog.Logger // required
	// Selector limits the watch to some Nodes, for a provider that labels its own. Empty: all Nodes.
	Selector string
	// Deleted hears of each Node that is gone, after the Source knows it. It must not block.
	Deleted func(cluster string, n Node)
}

// Node is what a Source keeps of a Node object.
type Node struct {
	Name, ProviderID, UID string
	Ready                 bool
	Deleting              bool
	Labels, Annotations   map[string]string
}

// Source watches the Nodes of many clusters. It implements provider.NodeSource.
type Source struct {
	config Config
	life   context.Context
	end    context.CancelFunc
	all    sync.WaitGroup

	mu       sync.Mutex
	clusters map[string]*cluster
}

var _ provider.NodeSource = (*Source)(nil)

// NewSource returns a Source. Close ends its watches.
func NewSource(c Config) (*Source, error) {
	if c.Clusters == nil || c.Log == nil {
		return nil, errors.New("nodeready: Clusters and Log are required")
	}
	if c.Deleted == nil {
		c.Deleted = func(string, Node) {}
	}
	s := &Source{config: c, clusters: map[string]*cluster{}}
	s.life, s.end = context.WithCancel(context.Background())
	s.all.Go(s.follow)
	return s, nil
}

// followInterval is how soon a changed kubeconfig counts for those who wait already; a new call looks by itself.
const followInterval = 2 * time.Second

// follow begins watches again whose cluster is reached in another way now.
func (s *Source) follow() {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		names := slices.Collect(maps.Keys(s.clusters))
		s.mu.Unlock()
		for _, name := range names {
			// A file that is gone for a moment, or unreadable, leaves the old watch in force.
			if _, err := s.cluster(name); err != nil {
				s.config.Log.Debug("the cluster's kubeconfig cannot be read; its watch stays open", "cluster", name, "err", err)
			}
		}
	}
}

// Close ends all watches and waits for them.
func (s *Source) Close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.all.Wait()
}

// Known says whether the cluster can be reached by configuration.
func (s *Source) Known(cluster string) error {
	_, err := s.config.Clusters.Find(cluster)
	return err
}

// Client returns a client of the cluster's core API, without client-side rate limits. It is not the whole clientset: that
// alone takes a minute to compile (adr/0115).
func (s *Source) Client(cluster string) (typedcorev1.CoreV1Interface, error) {
	c, err := s.cluster(cluster)
	if err != nil {
		return nil, err
	}
	return c.client, nil
}

// Ready implements provider.NodeSource.
func (s *Source) Ready(ctx context.Context, n provider.Node) error {
	return s.wait(ctx, n, func(found Node, ok bool) bool { return ok && found.Ready && !found.Deleting })
}

// Gone waits until the cluster has no such node.
func (s *Source) Gone(ctx context.Context, n provider.Node) error {
	return s.wait(ctx, n, func(_ Node, ok bool) bool { return !ok })
}

func (s *Source) wait(ctx context.Context, n provider.Node, done func(Node, bool) bool) error {
	for {
		c, err := s.cluster(n.Cluster)
		if err != nil {
			return err
		}
		if replaced, err := c.wait(ctx, n, done); !replaced {
			return err
		}
	}
}

// Exists asks the cluster itself, and the watch for a node of another name with that providerID.
func (s *Source) Exists(ctx context.Context, n provider.Node) (bool, error) {
	c, err := s.cluster(n.Cluster)
	if err != nil {
		return false, err
	}
	_, err = c.client.Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return true, nil
	case !apierrors.IsNotFound(err):
		return false, err
	}
	if err := c.awaitSync(ctx); err != nil {
		return false, err
	}
	_, found := c.find(n)
	return found, nil
}

// Nodes lists what the watch of a cluster shows; an error while it has not shown everything once.
func (s *Source) Nodes(ctx context.Context, cluster string) ([]Node, error) {
	c, err := s.cluster(cluster)
	if err != nil {
		return nil, err
	}
	if err := c.awaitSync(ctx); err != nil {
		return nil, fmt.Errorf("cluster %q: %w", cluster, err)
	}
	var out []Node
	for _, object := range c.informer.GetStore().List() {
		out = append(out, view(object.(*corev1.Node)))
	}
	return out, nil
}

// cluster returns the watch of a cluster, beginning it, or beginning it again when the way to reach it changed.
func (s *Source) cluster(name string) (*cluster, error) {
	version, err := s.config.Clusters.Find(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, errors.New("nodeready: closed")
	}
	c := s.clusters[name]
	if c != nil && c.version == version {
		return c, nil
	}
	config, err := s.config.Clusters.Config(name)
	if err != nil {
		return nil, err
	}
	next, err := newCluster(name, version, prepare(config), s.config)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", name, err)
	}
	if c != nil {
		s.config.Log.Info("a cluster's kubeconfig changed; its watch is restarted", "cluster", name)
		c.end()
	}
	s.clusters[name] = next
	s.all.Go(func() { next.run(s.life) })
	return next, nil
}

// prepare takes the client-side rate limits off: the apiserver has its own, and a burst of a thousand machines must not
// wait in this process.
func prepare(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil
	if c.UserAgent == "" {
		c.UserAgent = "bigfleet-provider"
	}
	return c
}
