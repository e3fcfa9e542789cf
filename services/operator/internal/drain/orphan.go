package drain

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

// orphaned reports whether the Node of an ended drain was left behind: its machine is no longer this cluster's, and its kubelet
// is silent. The caller holds the lock.
func (d *Drainer) orphaned(t *drain, n *corev1.Node, now time.Time) bool {
	_, known := d.Machines.Machine(t.state.Machine)
	ready, _, _ := machine.Ready(n)
	if d.KeepNodes || known || ready || d.resynced.IsZero() || t.outcome != outcomeDrained || t.deleting {
		t.goneSince = time.Time{}
		return false
	}
	if t.goneSince.IsZero() {
		t.goneSince = now
	}
	return now.Sub(t.goneSince) >= d.OrphanAfter
}

// deleteNode deletes a Node that BigFleet drained and whose machine is gone (OP-8.18).
func (d *Drainer) deleteNode(ctx context.Context, t *drain) {
	err := d.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.node}}, client.Preconditions{UID: &t.uid})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // conflict: another Node has the name
		d.Log.Info("the Node of a machine that is gone is deleted", "node", t.node, "machine", t.state.Machine, "err", err)
		return
	}
	d.Log.Warn("the Node of a machine that is gone could not be deleted", "node", t.node, "machine", t.state.Machine, "err", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	t.deleting, t.goneSince = false, time.Time{} // again after the same time
}
