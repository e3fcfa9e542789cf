package upcoming

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

// Reasons of the conditions (OP-12.5). The lists are closed.
const (
	ReasonCreating     = "Creating"         // Provisioned=False: the provider is making the host
	ReasonHostExists   = "HostExists"       // Provisioned=True
	ReasonHostFailed   = "HostFailed"       // Provisioned=False: see lastError
	ReasonWaiting      = "WaitingToJoin"    // NodeReady=False: no Node yet
	ReasonNodeReady    = "NodeReady"        // NodeReady=True
	ReasonNodeNotReady = "NodeNotReady"     // NodeReady=False: the Node exists
	ReasonNeverJoined  = "NeverJoined"      // NodeReady=False: Configured, and no Ready Node for the join timeout
	ReasonAmbiguous    = "Ambiguous"        // NodeReady=Unknown: two Nodes could be the machine
	ReasonDraining     = "Draining"         // Draining=True
	ReasonDrained      = "Drained"          // Draining=True: no Pod is left that has to go
	ReasonDrainFailed  = "DeadlineExceeded" // Draining=True: the grace ended first
	ReasonDrainBroken  = "MachineFailed"    // Draining=True: the machine failed before the drain ended
	ReasonServing      = "NotDraining"      // Draining=False
	ReasonInService    = "TakesPods"        // InService=True
	ReasonCordoned     = "Cordoned"         // InService=False: by somebody other than BigFleet
	ReasonTainted      = "Tainted"          // InService=False: by somebody other than BigFleet
	ReasonNodeLost     = "NodeLost"         // InService=False: NotReady for long
)

// status fills the status of an object (OP-12.4).
func (w *Writer) status(o *v1alpha1.UpcomingNode, e *entry, s stage, m *pb.NodeStateUpdate) {
	now := metav1.Now()
	st := &o.Status
	st.Phase = s.phase
	st.LastError = ""
	if s.phase == v1alpha1.NodeFailed {
		st.LastError = s.failure
	}
	if st.ProvisioningStartTime == nil {
		st.ProvisioningStartTime = new(now.Rfc3339Copy())
	}
	if m.GetProviderId() != "" {
		st.ProviderID = m.ProviderId
	}
	node, how := w.Machines.Find(e.id)
	if node != nil {
		st.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node.Name}
	}
	for _, c := range []metav1.Condition{provisioned(s, m), w.nodeReady(e.id, node, how, now.Time), draining(s)} {
		meta.SetStatusCondition(&st.Conditions, c)
	}
	w.inService(e.id, &st.Conditions)
}

// inService sets condition InService of a machine whose node takes no Pods (OP-11.7). Other machines have it only if they were
// out of service before.
func (w *Writer) inService(id string, conditions *[]metav1.Condition) {
	if w.OutOfService == nil {
		return
	}
	if reason, message, out := w.OutOfService(id); out {
		meta.SetStatusCondition(conditions, condition(v1alpha1.ConditionInService, metav1.ConditionFalse, reason, message))
	} else if meta.FindStatusCondition(*conditions, v1alpha1.ConditionInService) != nil {
		meta.SetStatusCondition(conditions, condition(v1alpha1.ConditionInService, metav1.ConditionTrue, ReasonInService, "The node takes Pods."))
	}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func provisioned(s stage, m *pb.NodeStateUpdate) metav1.Condition {
	switch {
	case s.phase == v1alpha1.NodeFailed && (s.broken || !s.leaving):
		return condition(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, ReasonHostFailed, "The machine failed: see status.lastError.")
	case s.phase == v1alpha1.NodeProvisioning:
		return condition(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, ReasonCreating, "The provider is creating the machine.")
	}
	return condition(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, ReasonHostExists, "The machine exists.")
}

func (w *Writer) nodeReady(id string, node *corev1.Node, how machine.Match, now time.Time) metav1.Condition {
	ready, since := false, time.Time{}
	if node != nil {
		ready, since, _ = machine.Ready(node)
	}
	known, _ := w.Machines.Machine(id)
	switch {
	case how == machine.Ambiguous:
		return condition(v1alpha1.ConditionNodeReady, metav1.ConditionUnknown, ReasonAmbiguous,
			"More than one Node could be this machine. Compare label bigfleet.lucy.sh/machine-id and spec.providerID of the Nodes.")
	case ready:
		return condition(v1alpha1.ConditionNodeReady, metav1.ConditionTrue, ReasonNodeReady, "Node "+node.Name+" is Ready.")
	case w.overdue(known, since, now):
		return condition(v1alpha1.ConditionNodeReady, metav1.ConditionFalse, ReasonNeverJoined,
			"The machine is configured, but its Node has not become Ready within "+w.JoinTimeout.String()+". Check the boot log of the machine and the bootstrap template.")
	case node != nil:
		return condition(v1alpha1.ConditionNodeReady, metav1.ConditionFalse, ReasonNodeNotReady, "Node "+node.Name+" exists and is not Ready.")
	}
	return condition(v1alpha1.ConditionNodeReady, metav1.ConditionFalse, ReasonWaiting, "No Node has joined yet.")
}

// overdue says that a machine is Configured and had no Ready Node for the join timeout (OP-11.3).
func (w *Writer) overdue(m machine.Machine, notReadySince, now time.Time) bool {
	if m.Configured.IsZero() {
		return false
	}
	since := m.Configured
	if notReadySince.After(since) {
		since = notReadySince
	}
	return now.Sub(since) >= w.JoinTimeout
}

func draining(s stage) metav1.Condition {
	switch {
	case s.phase == v1alpha1.NodeDraining:
		return condition(v1alpha1.ConditionDraining, metav1.ConditionTrue, ReasonDraining, "The machine is leaving; its Pods are being evicted.")
	case s.phase == v1alpha1.NodeDrained:
		return condition(v1alpha1.ConditionDraining, metav1.ConditionTrue, ReasonDrained, "All Pods that had to leave are gone.")
	case s.broken && s.leaving:
		return condition(v1alpha1.ConditionDraining, metav1.ConditionTrue, ReasonDrainBroken, "The machine failed while it was leaving: see status.lastError.")
	case s.phase == v1alpha1.NodeFailed && s.leaving:
		return condition(v1alpha1.ConditionDraining, metav1.ConditionTrue, ReasonDrainFailed, "The deadline passed before all Pods were gone.")
	}
	return condition(v1alpha1.ConditionDraining, metav1.ConditionFalse, ReasonServing, "The machine is not leaving.")
}

// failedSince is when an object became Failed, as far as it tells.
func failedSince(o *v1alpha1.UpcomingNode) time.Time {
	since := o.CreationTimestamp.Time
	for _, c := range o.Status.Conditions {
		if c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}
