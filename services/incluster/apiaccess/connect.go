package apiaccess

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is a kind that the process uses.
type Kind struct {
	GVK      schema.GroupVersionKind
	Resource string // plural
	Cluster  bool   // cluster-scoped
}

// Config is what Connect needs.
type Config struct {
	REST    *rest.Config
	Scheme  *runtime.Scheme
	Kinds   []Kind
	Objects map[client.Object]cache.ByObject // transforms and selectors of cached kinds

	Program string // required: names the program and its version to the API server, as in bigfleet-operator/v1.2.3

	QPS   float32 // requests per second; negative or 0 means no limit here
	Burst int     // requests at once under a limit; 0 means twice QPS

	// OnWatchError hears of every broken list or watch. It must not block. nil means that nothing does.
	OnWatchError func(resource string, err error)

	// OnRead hears of every attempt to list or watch a whole kind, by its plural: nil when the API server began to
	// answer. The reflector hides a refused connection from OnWatchError, so this is how an outage is seen. It must not
	// block. nil means that nothing does.
	OnRead func(plural string, err error)
}

// Access is a way to one API server.
type Access struct {
	Client client.Client // not cached
	Cache  cache.Cache   // the caller runs it with Start
	REST   *rest.Config
}

// LoadREST reads a kubeconfig file, or the service account of the Pod when the path is empty.
func LoadREST(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("not inside a cluster: --kubeconfig is needed")
		}
		return c, err
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	return c, nil
}

// Connect makes an Access. It sends nothing.
func Connect(c Config) (*Access, error) {
	if c.REST == nil || c.Scheme == nil || len(c.Kinds) == 0 || c.Program == "" {
		return nil, errors.New("apiaccess: REST, Scheme, Kinds and Program are required")
	}
	conf := rest.CopyConfig(c.REST)
	conf.UserAgent = c.Program
	conf.QPS, conf.Burst = c.QPS, c.Burst
	switch {
	case c.QPS <= 0:
		conf.QPS, conf.Burst = -1, 0
	case c.Burst <= 0:
		conf.Burst = max(1, int(2*c.QPS))
	}
	// Built-in kinds come as protobuf where the server has it: half the bytes, a quarter of the decoding.
	conf.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	conf.ContentType = "application/json"
	if c.OnRead != nil {
		conf.Wrap(func(next http.RoundTripper) http.RoundTripper { return reads{next, c.OnRead} })
	}
	httpClient, err := rest.HTTPClientFor(conf)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range c.Kinds {
		scope := meta.RESTScopeNamespace
		if k.Cluster {
			scope = meta.RESTScopeRoot
		}
		plural := k.GVK.GroupVersion().WithResource(k.Resource)
		mapper.AddSpecific(k.GVK, plural, plural, scope)
	}
	cl, err := client.New(conf, client.Options{HTTPClient: httpClient, Scheme: c.Scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	yes, never := true, 1000*time.Hour
	opts := cache.Options{
		HTTPClient: httpClient, Scheme: c.Scheme, Mapper: mapper, ByObject: c.Objects, DefaultUnsafeDisableDeepCopy: &yes,
		SyncPeriod: &never, ReaderFailOnMissingInformer: true,
	}
	if c.OnWatchError != nil {
		opts.DefaultWatchErrorHandler = func(ctx context.Context, r *toolscache.Reflector, err error) {
			c.OnWatchError(cmp.Or(r.TypeDescription(), "unknown"), err)
		}
	}
	ca, err := cache.New(conf, opts)
	if err != nil {
		return nil, fmt.Errorf("API cache: %w", err)
	}
	return &Access{Client: cl, Cache: ca, REST: conf}, nil
}

// reads reports what becomes of GET requests.
type reads struct {
	next http.RoundTripper
	hear func(plural string, err error)
}

// RoundTrip implements http.RoundTripper.
func (r reads) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(req)
	if req.Method == http.MethodGet && req.Context().Err() == nil {
		failed := err
		if err == nil && answer.StatusCode >= http.StatusBadRequest {
			failed = errors.New(answer.Status)
		}
		r.hear(path.Base(req.URL.Path), failed)
	}
	return answer, err
}

// ServerVersion asks the API server for its version, such as v1.36.3.
func (a *Access) ServerVersion(ctx context.Context) (string, error) {
	d, err := discovery.NewDiscoveryClientForConfig(a.REST)
	if err != nil {
		return "", err
	}
	body, err := d.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	return gitVersion(body)
}
