package volumes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Attaches counts the volumes of each CSI driver that a Pod attaches to its node, by distinct claim. Claims of which no driver is known yet
// count for nothing.
func (s *Store) Attaches(p *corev1.Pod) (out map[string]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[types.NamespacedName]bool{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name, ok := claimOf(p, v)
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		claim := s.claims[name]
		if claim == nil && v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			claim = &corev1.PersistentVolumeClaim{Spec: v.Ephemeral.VolumeClaimTemplate.Spec}
		}
		if driver := s.driver(claim); driver != "" && (len(out) < driversMax || out[driver] > 0) {
			if out == nil {
				out = map[string]int32{}
			}
			out[driver]++
		}
	}
	return out
}

const driversMax = 32 // of one Pod, as the definition allows

// driver is the CSI driver that attaches a claim, or empty.
func (s *Store) driver(c *corev1.PersistentVolumeClaim) string {
	switch {
	case c == nil:
		return ""
	case c.Spec.VolumeName != "":
		if v := s.volumes[c.Spec.VolumeName]; v != nil && v.Spec.CSI != nil {
			return v.Spec.CSI.Driver
		}
	case c.Spec.StorageClassName != nil:
		if class := s.classes[*c.Spec.StorageClassName]; class != nil {
			return migrated(class.Provisioner)
		}
	}
	return ""
}

// migrated is the CSI driver that stands for a provisioner: itself, if it is not part of Kubernetes.
func migrated(provisioner string) string {
	if to, ok := inTree[provisioner]; ok {
		return to
	}
	if strings.HasPrefix(provisioner, "kubernetes.io/") {
		return ""
	}
	return provisioner
}

var inTree = map[string]string{
	"kubernetes.io/aws-ebs":        ebs,
	"kubernetes.io/gce-pd":         gce,
	"kubernetes.io/azure-disk":     azure,
	"kubernetes.io/cinder":         cinder,
	"kubernetes.io/vsphere-volume": vsphere,
}

const (
	ebs     = "ebs.csi.aws.com"
	gce     = "pd.csi.storage.gke.io"
	azure   = "disk.csi.azure.com"
	cinder  = "cinder.csi.openstack.org"
	vsphere = "csi.vsphere.vmware.com"
)

// driverOf is the CSI driver that attaches a volume, or empty.
func driverOf(v *corev1.PersistentVolume) string {
	switch s := v.Spec.PersistentVolumeSource; {
	case s.CSI != nil:
		return s.CSI.Driver
	case s.AWSElasticBlockStore != nil:
		return ebs
	case s.GCEPersistentDisk != nil:
		return gce
	case s.AzureDisk != nil:
		return azure
	case s.Cinder != nil:
		return cinder
	case s.VsphereVolume != nil:
		return vsphere
	}
	return ""
}
