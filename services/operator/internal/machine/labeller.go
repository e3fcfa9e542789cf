package machine

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

const (
	labelRetry = 5 * time.Second
	writtenMax = 20_000 // Nodes remembered; one that is forgotten is at worst labelled again
)

// Labeller makes what was found by provider id or name permanent: it writes the machine's id onto the Node, once
// (OP-10.3).
type Labeller struct {
	Registry *Registry
	Client   client.Client
	Log      *slog.Logger

	mu      sync.Mutex
	running bool // before Run nothing is noted: a standby replica may wait for months
	dirty   map[string]struct{}
	done    map[types.UID]string // Node -> machine that was written
	wake    chan struct{}
}

// NewLabeller returns a Labeller that has nothing to do.
func NewLabeller(r *Registry, c client.Client, log *slog.Logger) *Labeller {
	return &Labeller{Registry: r, Client: c, Log: log, dirty: map[string]struct{}{}, done: map[types.UID]string{}, wake: make(chan struct{}, 1)}
}

// Touch says that the Nodes of machines may have changed. It never blocks.
func (l *Labeller) Touch(ids []string) {
	l.mu.Lock()
	for _, id := range ids {
		if l.running {
			l.dirty[id] = struct{}{}
		}
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run labels Nodes until ctx ends. It begins with those of all machines that are known.
func (l *Labeller) Run(ctx context.Context) error {
	l.mu.Lock()
	l.running = true
	l.mu.Unlock()
	l.Touch(l.Registry.IDs())
	for {
		again := false
		for _, id := range l.take() {
			if err := l.label(ctx, id); err != nil && ctx.Err() == nil {
				l.Log.Warn("a Node could not be labelled with its machine", "machine", id, "err", err)
				l.Touch([]string{id})
				again = true
			}
		}
		var retry <-chan time.Time
		if again {
			retry = time.After(labelRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case <-l.wake:
			if again {
				select { // what failed waits, whatever else happens
				case <-ctx.Done():
					return nil
				case <-retry:
				}
			}
		}
	}
}

func (l *Labeller) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, 0, len(l.dirty))
	for id := range l.dirty {
		out = append(out, id)
	}
	clear(l.dirty)
	return out
}

func (l *Labeller) label(ctx context.Context, id string) error {
	n, how := l.Registry.Find(id)
	if _, known := l.Registry.Machine(id); !known || n == nil || how == ByLabel || l.written(n.UID) == id {
		return nil
	}
	meta := map[string]any{"labels": map[string]any{v1alpha1.LabelMachineID: LabelValue(id)}}
	if LabelValue(id) != id {
		meta["annotations"] = map[string]any{v1alpha1.LabelMachineID: id}
	}
	body, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	err = l.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.RawPatch(types.MergePatchType, body))
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	l.mu.Lock()
	if len(l.done) >= writtenMax {
		clear(l.done)
	}
	l.done[n.UID] = id
	l.mu.Unlock()
	return nil
}

func (l *Labeller) written(node types.UID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done[node]
}
