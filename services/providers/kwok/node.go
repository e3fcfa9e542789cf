package kwok

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What a Node of ours carries (PROV-27.4).
const (
	labelProvider       = "bigfleet.lucy.sh/provider"
	labelMachine        = "bigfleet.lucy.sh/machine-id"
	annotationStore     = "bigfleet.lucy.sh/store-id"
	annotationOperation = "bigfleet.lucy.sh/operation-id"
	annotationCluster   = "bigfleet.lucy.sh/cluster"
	annotationMetadata  = "bigfleet.lucy.sh/shard-metadata"        // JSON
	annotationDigest    = "bigfleet.lucy.sh/shard-metadata-sha256" // instead, when it is too large
	annotationBlob      = "bigfleet.lucy.sh/bootstrap-sha256"
	annotationMachine   = "bigfleet.lucy.sh/machine" // JSON of the attributes, for a store that was lost
	annotationKwok      = "kwok.x-k8s.io/node"
)

// metadataBytesMax keeps the annotations below the 256 KiB that an apiserver takes.
const metadataBytesMax = 128 << 10

// devicesPrefix begins the names of resources that count devices of a DeviceClass (OP-15.32).
const devicesPrefix = "deviceclass.resource.kubernetes.io/"

// podsDefault is what a kubelet allows by default (PROV-27.5).
const podsDefault = "110"

// nodeFor builds the Node of a machine.
func nodeFor(op provider.ConfigureOp, storeID, providerName, blobSum string) (*corev1.Node, error) {
	m := op.Machine
	labels := maps.Clone(m.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for k, v := range map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"} {
		if labels[k] == "" {
			labels[k] = v
		}
	}
	// As a kubelet does: where they are missing, kube-controller-manager adds them with one more write to each Node.
	labels["beta.kubernetes.io/os"], labels["beta.kubernetes.io/arch"] = labels[corev1.LabelOSStable], labels[corev1.LabelArchStable]
	labels[corev1.LabelHostname] = m.ID
	labels[corev1.LabelInstanceTypeStable] = m.InstanceType
	labels[corev1.LabelTopologyZone] = m.Zone
	labels[labelMachine] = machineLabel(m.ID)
	labels[labelProvider] = providerName

	attributes, err := json.Marshal(m.Attributes)
	if err != nil {
		return nil, fmt.Errorf("describe the machine: %w", err)
	}
	annotations := map[string]string{
		annotationKwok: "fake", annotationStore: storeID, annotationOperation: op.ID, annotationCluster: op.Cluster,
		annotationBlob: blobSum, annotationMachine: string(attributes),
	}
	if labels[labelMachine] != m.ID {
		annotations[labelMachine] = m.ID
	}
	if err := annotateMetadata(annotations, op.Metadata); err != nil {
		return nil, err
	}
	size, err := quantities(m)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.ID, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{ProviderID: m.HostRef},
		Status: corev1.NodeStatus{
			Capacity: size, Allocatable: size,
			NodeInfo: corev1.NodeSystemInfo{Architecture: labels[corev1.LabelArchStable], OperatingSystem: labels[corev1.LabelOSStable]},
		},
	}
	for _, t := range m.Taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return node, nil
}

// machineLabel is the machine id, or a hash of it where it is not a legal label value (WIRE-11).
func machineLabel(id string) string {
	if len(validation.IsValidLabelValue(id)) == 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "h-" + hex.EncodeToString(sum[:16])
}

// annotateMetadata writes the metadata, or its digest when it is too large.
func annotateMetadata(into, metadata map[string]string) error {
	text, err := json.Marshal(metadata)
	if err != nil {
		return fmt.Errorf("write the metadata: %w", err)
	}
	if len(text) > metadataBytesMax {
		sum := sha256.Sum256(text)
		into[annotationDigest] = hex.EncodeToString(sum[:])
		return nil
	}
	into[annotationMetadata] = string(text)
	return nil
}

// bindingOf reads the binding back; metadata is nil when only its digest is there.
func bindingOf(annotations map[string]string) (*provider.Binding, error) {
	b := &provider.Binding{Cluster: annotations[annotationCluster]}
	text, whole := annotations[annotationMetadata]
	if !whole {
		return b, nil
	}
	if err := json.Unmarshal([]byte(text), &b.Metadata); err != nil {
		return b, fmt.Errorf("the metadata annotation is damaged: %w", err)
	}
	return b, nil
}

func quantities(m provider.Machine) (corev1.ResourceList, error) {
	from := m.Allocatable
	if len(from) == 0 {
		from = m.Resources
	}
	out := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(podsDefault)}
	for name, text := range from {
		if strings.HasPrefix(name, devicesPrefix) {
			continue // a driver publishes devices as ResourceSlices
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("resource %s = %q: %w", name, text, err)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// checkNode says why no Node could be made of a machine, without asking an apiserver.
func checkNode(m provider.Machine) error {
	var all []error
	if !nodeName.MatchString(m.ID) {
		all = append(all, fmt.Errorf("machine id %q is not a node name", m.ID))
	}
	for k, v := range m.Labels {
		for _, why := range append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...) {
			all = append(all, fmt.Errorf("label %s=%s: %s", k, v, why))
		}
	}
	for _, v := range []string{m.InstanceType, m.Zone} {
		for _, why := range validation.IsValidLabelValue(v) {
			all = append(all, fmt.Errorf("%q cannot be a label value: %s", v, why))
		}
	}
	if _, err := quantities(m); err != nil {
		all = append(all, err)
	}
	return errors.Join(all...)
}
