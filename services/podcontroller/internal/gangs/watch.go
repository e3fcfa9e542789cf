package gangs

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/lazywatch"
)

// Watcher is a Store that reads the objects that define gangs, of the kinds that Pods refer to.
type Watcher struct {
	*Store
	*lazywatch.Watcher
}

// NewWatcher makes a Watcher for the kinds that define gangs.
func NewWatcher(conf *rest.Config, log *slog.Logger, changed func([]types.UID)) (*Watcher, error) {
	w := &Watcher{}
	var err error
	if w.Watcher, err = lazywatch.New(lazywatch.Config{REST: conf, Log: log, Kinds: Kinds(), Else: "each requests capacity on its own", Strip: strip}); err != nil {
		return nil, err
	}
	w.Store = New(changed, w.Need)
	w.Served, w.Set = w.setServed, w.setObject
	return w, nil
}

// strip keeps the name and the parts of the spec that define reads: a JobSet holds whole templates of Pods.
func strip(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	out := lazywatch.Bare(u)
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	jobs, _, _ := unstructured.NestedSlice(spec, "replicatedJobs")
	for _, j := range jobs {
		if job, ok := j.(map[string]any); ok {
			for _, path := range [][]string{{"template", "metadata"}, {"template", "spec", "template"}} {
				unstructured.RemoveNestedField(job, path...)
			}
		}
	}
	if len(jobs) > 0 {
		spec["replicatedJobs"] = jobs
	}
	if spec != nil {
		out.Object["spec"] = spec
	}
	return out, nil
}
