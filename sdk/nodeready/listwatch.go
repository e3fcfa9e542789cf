package nodeready

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ListWatch lists and watches for an informer that ends with its context. When an API server refuses the stream that an informer begins
// with, client-go sleeps for up to half a minute whatever its context says. So that error is passed on without its type: the informer
// lists instead, and its pause after a list that fails ends with the context.
func ListWatch(list func(context.Context, metav1.ListOptions) (runtime.Object, error), begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, o)
		if err != nil && o.SendInitialEvents != nil {
			return nil, errors.New(err.Error())
		}
		return w, err
	}}
}
