package clusterapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What every object of ours carries, and what a Machine carries in addition.
const (
	labelProvider       = "bigfleet.lucy.sh/provider"
	labelMachine        = "bigfleet.lucy.sh/machine-id"
	annotationStore     = "bigfleet.lucy.sh/store-id"
	annotationOperation = "bigfleet.lucy.sh/operation-id"
	annotationCluster   = "bigfleet.lucy.sh/cluster"
	annotationMetadata  = "bigfleet.lucy.sh/shard-metadata"        // JSON
	annotationDigest    = "bigfleet.lucy.sh/shard-metadata-sha256" // instead, when it is too large
	annotationMachine   = "bigfleet.lucy.sh/machine"               // JSON of the attributes, for a store that was lost
)

// Names of Cluster API's contract.
const (
	labelClusterName     = "cluster.x-k8s.io/cluster-name"
	annotationClonedName = "cluster.x-k8s.io/cloned-from-name"
	annotationClonedKind = "cluster.x-k8s.io/cloned-from-groupkind"
	annotationNoDrain    = "machine.cluster.x-k8s.io/exclude-node-draining"
	annotationNoDetach   = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
	bootstrapSecretType  = "cluster.x-k8s.io/secret"
	conditionNodeHealthy = "NodeHealthy"
	conditionInfraReady  = "InfrastructureReady"
)

var (
	machines = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"}
	clusters = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}
	secrets  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// metadataBytesMax keeps the annotations below the 256 KiB that an API server takes. Beyond it the Machine carries a digest.
const metadataBytesMax = 128 << 10

// bootBytesMax is what a Secret holds beside the format (PROV-8.7).
const bootBytesMax = 1<<20 - 64

// marks are the labels and annotations by which an object is ours, and of which operation.
func marks(o *unstructured.Unstructured, providerName, storeID string, op provider.ConfigureOp, c cluster) {
	o.SetNamespace(c.Namespace)
	o.SetName(op.Machine.ID)
	o.SetLabels(map[string]string{labelProvider: providerName, labelMachine: op.Machine.ID, labelClusterName: c.Name})
	o.SetAnnotations(map[string]string{annotationStore: storeID, annotationOperation: op.ID})
}

// bootSecret is the bootstrap Secret of the contract: the boot data as it came from the operator.
func bootSecret(providerName, storeID string, op provider.ConfigureOp, c cluster) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": bootstrapSecretType,
		"data": map[string]any{
			"value":  base64.StdEncoding.EncodeToString(withoutProviderID(op.Blob, op.Machine.HostRef)),
			"format": base64.StdEncoding.EncodeToString([]byte(bootFormat(op.Blob))),
		},
	}}
	marks(o, providerName, storeID, op, c)
	return o
}

// withoutProviderID takes the kubelet's flag with our reference out of boot data. The reference names a slot. The infrastructure names
// the server, its cloud controller writes that on the Node, and Cluster API finds the Node by it.
func withoutProviderID(blob []byte, ref string) []byte {
	return regexp.MustCompile(`--provider-id=`+regexp.QuoteMeta(ref)+`(\s|$)`).ReplaceAll(blob, []byte("$1"))
}

// bootFormat is the format that infrastructure providers read beside the data: Ignition is JSON, all else is cloud-config,
// which also carries scripts.
func bootFormat(blob []byte) string {
	if json.Valid(blob) && strings.Contains(string(blob), `"ignition"`) {
		return "ignition"
	}
	return "cloud-config"
}

// infraMachine clones the template, as Cluster API does for a MachineSet.
func infraMachine(from *unstructured.Unstructured, providerName, storeID string, op provider.ConfigureOp, c cluster) (*unstructured.Unstructured, error) {
	spec, found, err := unstructured.NestedMap(from.Object, "spec", "template", "spec")
	if err != nil || !found {
		return nil, fmt.Errorf("%s %s/%s has no spec.template.spec", from.GetKind(), from.GetNamespace(), from.GetName())
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(from.GetAPIVersion())
	o.SetKind(strings.TrimSuffix(from.GetKind(), templateSuffix))
	marks(o, providerName, storeID, op, c)
	annotations := o.GetAnnotations()
	annotations[annotationClonedName] = from.GetName()
	annotations[annotationClonedKind] = from.GroupVersionKind().GroupKind().String()
	o.SetAnnotations(annotations)
	return o, nil
}

// machineFor is the Machine, whose existence means that secret and infrastructure machine exist too. Cluster API does not
// drain its Node: the operator has evicted the Pods before, under the budgets of the cluster.
func machineFor(infra *unstructured.Unstructured, providerName, storeID string, op provider.ConfigureOp, c cluster) (*unstructured.Unstructured, error) {
	attributes, err := json.Marshal(op.Machine.Attributes)
	if err != nil {
		return nil, fmt.Errorf("describe the machine: %w", err)
	}
	metadata, err := json.Marshal(op.Metadata)
	if err != nil {
		return nil, fmt.Errorf("write the metadata: %w", err)
	}
	metadataKey, metadataText := annotationMetadata, string(metadata)
	if len(metadata) > metadataBytesMax {
		sum := sha256.Sum256(metadata)
		metadataKey, metadataText = annotationDigest, hex.EncodeToString(sum[:])
	}
	gk := infra.GroupVersionKind().GroupKind()
	spec := map[string]any{
		"clusterName": c.Name,
		"bootstrap":   map[string]any{"dataSecretName": op.Machine.ID},
		"infrastructureRef": map[string]any{
			"apiGroup": gk.Group, "kind": gk.Kind, "name": infra.GetName(),
		},
	}
	if op.Machine.Zone != "" {
		spec["failureDomain"] = op.Machine.Zone
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(machines.GroupVersion().String())
	o.SetKind("Machine")
	marks(o, providerName, storeID, op, c)
	annotations := o.GetAnnotations()
	for k, v := range map[string]string{
		annotationCluster: op.Cluster, annotationMachine: string(attributes), metadataKey: metadataText,
		annotationNoDrain: "", annotationNoDetach: "",
	} {
		annotations[k] = v
	}
	o.SetAnnotations(annotations)
	return o, nil
}

// condition returns status and text of a condition; status is empty when there is none.
func condition(o *unstructured.Unstructured, kind string) (status, text string) {
	list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return "", ""
	}
	for _, one := range list {
		fields, ok := one.(map[string]any)
		if !ok || fields["type"] != kind {
			continue
		}
		status, _ = fields["status"].(string)
		reason, _ := fields["reason"].(string)
		message, _ := fields["message"].(string)
		return status, strings.TrimSpace(strings.TrimSuffix(reason+": "+strings.Join(strings.Fields(message), " "), ": "))
	}
	return "", ""
}

// ready says whether the Node of a Machine is Ready, and otherwise what Cluster API is waiting for.
func ready(m *unstructured.Unstructured) (yes bool, why string) {
	node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name") // another type than text is no node
	healthy, text := condition(m, conditionNodeHealthy)
	if node != "" && healthy == string(metav1.ConditionTrue) {
		return true, ""
	}
	if status, infra := condition(m, conditionInfraReady); status != string(metav1.ConditionTrue) && infra != "" {
		text = infra
	}
	if text == "" {
		text = "Cluster API has not reported on it yet"
	}
	return false, text
}

// Infrastructure providers report a refused launch as text alone. Each cloud has its own words for the two cases in which
// another machine should be tried instead (PROV-15.6).
var (
	stockOut = regexp.MustCompile(`(?i)insufficient ?(instance|host|server|reserved)? ?capacity|out of capacity|no available capacity|zone_resource_pool_exhausted|skunotavailable|allocationfailed|no valid host|not enough (free )?(hosts|resources)`)
	quota    = regexp.MustCompile(`(?i)quota|limit ?exceeded|vcpulimit`)
)

// refusal turns what the infrastructure said into the class that the shard acts on; nil while there is nothing definite.
func refusal(text string) error {
	switch {
	case stockOut.MatchString(text):
		return provider.OutOfCapacity(errors.New(text))
	case quota.MatchString(text):
		return provider.Quota(errors.New(text))
	}
	return nil
}

// checkMachine says why no Machine could be made, without asking an API server.
func checkMachine(m provider.Machine) error {
	var all []error
	for _, why := range validation.IsDNS1123Label(m.ID) {
		all = append(all, fmt.Errorf("machine id %q: %s", m.ID, why))
	}
	return errors.Join(all...)
}
