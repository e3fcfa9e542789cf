package volumes

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SetPod notes which claims a Pod uses: a Pod's volumes never change.
func (s *Store) SetPod(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.Spec.Volumes {
		if name, ok := claimOf(p, &p.Spec.Volumes[i]); ok {
			if s.users[name] == nil {
				s.users[name] = map[types.UID]struct{}{}
			}
			s.users[name][p.UID] = struct{}{}
		}
	}
}

// DeletePod takes the end of a Pod.
func (s *Store) DeletePod(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.Spec.Volumes {
		if name, ok := claimOf(p, &p.Spec.Volumes[i]); ok {
			if delete(s.users[name], p.UID); len(s.users[name]) == 0 {
				delete(s.users, name)
			}
		}
	}
}

// SetClaim takes the present form of a claim.
func (s *Store) SetClaim(c *corev1.PersistentVolumeClaim) { s.claim(c, c) }

// DeleteClaim takes the end of a claim.
func (s *Store) DeleteClaim(c *corev1.PersistentVolumeClaim) { s.claim(c, nil) }

func (s *Store) claim(of, now *corev1.PersistentVolumeClaim) {
	name := types.NamespacedName{Namespace: of.Namespace, Name: of.Name}
	s.mu.Lock()
	if s.claims[name] = now; now == nil {
		delete(s.claims, name)
	}
	users := s.usersOf(name)
	s.mu.Unlock()
	s.changed(users)
}

// SetVolume takes the present form of a volume.
func (s *Store) SetVolume(v *corev1.PersistentVolume) { s.volume(v, v) }

// DeleteVolume takes the end of a volume.
func (s *Store) DeleteVolume(v *corev1.PersistentVolume) { s.volume(v, nil) }

func (s *Store) volume(of, now *corev1.PersistentVolume) {
	s.mu.Lock()
	if s.volumes[of.Name] = now; now == nil {
		delete(s.volumes, of.Name)
	}
	var users []types.UID
	if c := of.Spec.ClaimRef; c != nil {
		users = s.usersOf(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	}
	s.mu.Unlock()
	s.changed(users)
}

// SetClass takes the present form of a storage class.
func (s *Store) SetClass(c *storagev1.StorageClass) { s.class(c, c) }

// DeleteClass takes the end of a storage class.
func (s *Store) DeleteClass(c *storagev1.StorageClass) { s.class(c, nil) }

// class is rare: every Pod with a claim is looked at again.
func (s *Store) class(of, now *storagev1.StorageClass) {
	s.mu.Lock()
	if s.classes[of.Name] = now; now == nil {
		delete(s.classes, of.Name)
	}
	var users []types.UID
	for name := range s.users {
		users = append(users, s.usersOf(name)...)
	}
	s.mu.Unlock()
	s.changed(users)
}

func (s *Store) usersOf(name types.NamespacedName) (out []types.UID) {
	for uid := range s.users[name] {
		out = append(out, uid)
	}
	return out
}

// Strip drops what a Store does not read of claims, volumes and classes, before they enter the cache.
func Strip(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta(o.ObjectMeta),
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: o.Spec.VolumeName, StorageClassName: o.Spec.StorageClassName}}, nil
	case *corev1.PersistentVolume:
		out := &corev1.PersistentVolume{ObjectMeta: meta(o.ObjectMeta), Spec: corev1.PersistentVolumeSpec{NodeAffinity: o.Spec.NodeAffinity}}
		out.Labels = o.Labels
		if driver := driverOf(o); driver != "" {
			out.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
		}
		if c := o.Spec.ClaimRef; c != nil {
			out.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name}
		}
		return out, nil
	case *storagev1.StorageClass:
		return &storagev1.StorageClass{ObjectMeta: meta(o.ObjectMeta), Provisioner: o.Provisioner, VolumeBindingMode: o.VolumeBindingMode, AllowedTopologies: o.AllowedTopologies}, nil
	}
	return o, nil
}

func meta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp}
}
