package devices

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/lazywatch"
)

// Watcher is a Store that reads claims, templates and classes once a Pod has a claim.
type Watcher struct {
	*Store
	*lazywatch.Watcher
}

// NewWatcher makes a Watcher.
func NewWatcher(conf *rest.Config, log *slog.Logger, changed func([]types.UID)) (*Watcher, error) {
	w := &Watcher{}
	var err error
	if w.Watcher, err = lazywatch.New(lazywatch.Config{REST: conf, Log: log, Kinds: Kinds(), Else: "nothing is bought for Pods with resource claims", Strip: strip}); err != nil {
		return nil, err
	}
	w.Store = New(changed, w.Need)
	w.Served, w.Complete, w.Set = w.setServed, w.setComplete, w.setObject
	return w, nil
}

// strip keeps the name and the devices that are asked for: status and configuration are not read.
func strip(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	out := lazywatch.Bare(u)
	if spec, _, _ := unstructured.NestedMap(u.Object, "spec"); spec != nil && u.GetKind() != "DeviceClass" {
		unstructured.RemoveNestedField(spec, "devices", "config")
		unstructured.RemoveNestedField(spec, "spec", "devices", "config")
		out.Object["spec"] = spec
	}
	return out, nil
}
