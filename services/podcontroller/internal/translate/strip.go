package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/gangs"
)

// StripPod returns what translation reads of a Pod (OP-15.22).
func StripPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds,
		},
		Spec: corev1.PodSpec{
			Containers: stripContainers(p.Spec.Containers), InitContainers: stripContainers(p.Spec.InitContainers),
			Overhead: p.Spec.Overhead, Resources: p.Spec.Resources, NodeSelector: p.Spec.NodeSelector, NodeName: p.Spec.NodeName,
			Priority: p.Spec.Priority, PreemptionPolicy: p.Spec.PreemptionPolicy, PriorityClassName: p.Spec.PriorityClassName, Tolerations: p.Spec.Tolerations,
			TopologySpreadConstraints: p.Spec.TopologySpreadConstraints, SchedulingGates: p.Spec.SchedulingGates,
			ResourceClaims: p.Spec.ResourceClaims, SchedulingGroup: p.Spec.SchedulingGroup, Volumes: stripVolumes(p.Spec.Volumes),
		},
		Status: corev1.PodStatus{
			Phase: p.Status.Phase, Resources: p.Status.Resources, AllocatedResources: p.Status.AllocatedResources,
			ContainerStatuses: stripStatuses(p.Status.ContainerStatuses), InitContainerStatuses: stripStatuses(p.Status.InitContainerStatuses),
		},
	}
	gangLabels, gangAnnotations := gangs.Shape(p)
	out.Labels = gangLabels
	for _, k := range append(gangAnnotations, corev1.MirrorPodAnnotationKey, "kubernetes.io/config.source", v1alpha1.AnnotationIgnore,
		v1alpha1.AnnotationInterruptionPenalty, v1alpha1.AnnotationReclamationPenalty) {
		if v, ok := p.Annotations[k]; ok {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[k] = v
		}
	}
	for _, r := range p.OwnerReferences {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{Kind: r.Kind, Controller: r.Controller})
	}
	for _, c := range p.Status.Conditions { // an infeasible resize changes what counts, and so does the scheduler's word
		if c.Type == corev1.PodScheduled && p.Spec.NodeName == "" || c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		slices.ContainsFunc(p.Spec.TopologySpreadConstraints, overHosts) {
		out.Labels = p.Labels // whether the Pod keeps away from its own peers
	}
	if a := p.Spec.Affinity; a != nil {
		out.Spec.Affinity = &corev1.Affinity{NodeAffinity: a.NodeAffinity, PodAffinity: a.PodAffinity, PodAntiAffinity: a.PodAntiAffinity}
	}
	if ofDaemonSet(p) { // nothing is requested for it, whatever its spec says, and that names the Pod's node
		out.Labels, out.Spec, out.Status = nil, corev1.PodSpec{NodeName: p.Spec.NodeName}, corev1.PodStatus{Phase: p.Status.Phase}
	}
	return out
}

func stripContainers(in []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, 0, len(in))
	for _, c := range in {
		out = append(out, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy, Ports: hostPortsOf(c)})
	}
	return out
}

// stripVolumes keeps the volumes that are claims.
func stripVolumes(in []corev1.Volume) (out []corev1.Volume) {
	for _, v := range in {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim, Ephemeral: v.Ephemeral}})
		}
	}
	return out
}

// hostPortsOf keeps the ports of the node that a container takes.
func hostPortsOf(c corev1.Container) (out []corev1.ContainerPort) {
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			out = append(out, corev1.ContainerPort{HostPort: p.HostPort, Protocol: p.Protocol, HostIP: p.HostIP})
		}
	}
	return out
}

func stripStatuses(in []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
	for _, c := range in {
		if c.Resources != nil || c.AllocatedResources != nil {
			out = append(out, corev1.ContainerStatus{Name: c.Name, Resources: c.Resources, AllocatedResources: c.AllocatedResources})
		}
	}
	return out
}

// StripNode keeps the name, the age and the labels of a Node.
func StripNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, CreationTimestamp: n.CreationTimestamp, Labels: n.Labels}}, nil
}
