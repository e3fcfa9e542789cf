// Package volumes knows where the persistent volumes of Pods can be used (OP-15.29).
//
// A Store holds what placement reads of claims, volumes and storage classes, and which Pods use which claim. Of gives the node
// selector terms that the volumes of one Pod add, or says what the Pod waits for that no machine can give.
//
// It does no I/O and decides nothing about capacity. It is safe for concurrent use. Start at Store.Of. Tests cite the operator
// specification as OP-n.n.
package volumes

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Store knows claims, volumes, classes and their users. Use New.
type Store struct {
	changed func([]types.UID)

	mu      sync.Mutex
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	users   map[types.NamespacedName]map[types.UID]struct{} // Pods by claim
}

// New returns an empty Store. changed hears of Pods whose volumes may be elsewhere now; it must not block.
func New(changed func([]types.UID)) *Store {
	return &Store{
		changed: changed, claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, users: map[types.NamespacedName]map[types.UID]struct{}{},
	}
}

// Of returns alternative terms for each volume of a Pod that cannot be everywhere. waits says what a pending Pod lacks that no machine
// gives it; it is empty if nothing.
func (s *Store) Of(p *corev1.Pod) (terms [][]corev1.NodeSelectorTerm, waits string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name, ok := claimOf(p, v)
		if !ok {
			continue
		}
		claim := s.claims[name]
		if claim == nil && v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil { // about to be made from its template
			claim = &corev1.PersistentVolumeClaim{Spec: v.Ephemeral.VolumeClaimTemplate.Spec}
		}
		t, why := s.place(claim)
		if why != "" && waits == "" {
			waits = fmt.Sprintf("volume %q: PersistentVolumeClaim %s %s; until then no machine would help this Pod", v.Name, name.Name, why)
		}
		if len(t) > 0 {
			terms = append(terms, t)
		}
	}
	return terms, waits
}

// place returns where a claim can be used, or what it waits for.
func (s *Store) place(c *corev1.PersistentVolumeClaim) (terms []corev1.NodeSelectorTerm, waits string) {
	switch {
	case c == nil:
		return nil, "does not exist"
	case c.DeletionTimestamp != nil:
		return nil, "is being deleted"
	case c.Spec.VolumeName != "":
		v := s.volumes[c.Spec.VolumeName]
		if v == nil {
			return nil, fmt.Sprintf("is bound to volume %s, which does not exist", c.Spec.VolumeName)
		}
		return ofVolume(v), ""
	case c.Spec.StorageClassName == nil || *c.Spec.StorageClassName == "":
		return nil, "has no storage class and is not bound to a volume"
	}
	class := s.classes[*c.Spec.StorageClassName]
	switch {
	case class == nil:
		return nil, fmt.Sprintf("names the storage class %s, which does not exist", *c.Spec.StorageClassName)
	case class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return nil, "is not bound to a volume yet"
	}
	return ofClass(class), ""
}

// ofVolume is where a volume that exists can be used: its node affinity, and its zone and region by label as kube-scheduler reads them.
func ofVolume(v *corev1.PersistentVolume) (terms []corev1.NodeSelectorTerm) {
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for _, t := range a.Required.NodeSelectorTerms {
			terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: aliased(t.MatchExpressions), MatchFields: t.MatchFields})
		}
	}
	var labelled []corev1.NodeSelectorRequirement
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion} {
		if value, ok := v.Labels[key]; ok {
			labelled = append(labelled, corev1.NodeSelectorRequirement{Key: alias(key), Operator: corev1.NodeSelectorOpIn, Values: strings.Split(value, "__")})
		}
	}
	if len(labelled) == 0 {
		return terms
	}
	if len(terms) == 0 {
		return []corev1.NodeSelectorTerm{{MatchExpressions: labelled}}
	}
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, labelled...)
	}
	return terms
}

// ofClass is where a class makes volumes.
func ofClass(c *storagev1.StorageClass) (terms []corev1.NodeSelectorTerm) {
	for _, t := range c.AllowedTopologies {
		var out corev1.NodeSelectorTerm
		for _, e := range t.MatchLabelExpressions {
			out.MatchExpressions = append(out.MatchExpressions, corev1.NodeSelectorRequirement{Key: alias(e.Key), Operator: corev1.NodeSelectorOpIn, Values: e.Values})
		}
		if len(out.MatchExpressions) > 0 {
			terms = append(terms, out)
		}
	}
	return terms
}

// aliases are keys of CSI drivers whose values are those of a label that machines have before they join.
var aliases = map[string]string{
	"topology.ebs.csi.aws.com/zone":          corev1.LabelTopologyZone,
	"topology.gke.io/zone":                   corev1.LabelTopologyZone,
	"topology.disk.csi.azure.com/zone":       corev1.LabelTopologyZone,
	"topology.cinder.csi.openstack.org/zone": corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaZone:        corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion:      corev1.LabelTopologyRegion,
}

func alias(key string) string {
	if to, ok := aliases[key]; ok {
		return to
	}
	return key
}

func aliased(in []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	out := slices.Clone(in)
	for i := range out {
		out[i].Key = alias(out[i].Key)
	}
	return out
}

// claimOf names the claim of a volume.
func claimOf(p *corev1.Pod, v *corev1.Volume) (types.NamespacedName, bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return types.NamespacedName{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, true
	case v.Ephemeral != nil:
		return types.NamespacedName{Namespace: p.Namespace, Name: p.Name + "-" + v.Name}, true
	}
	return types.NamespacedName{}, false
}
