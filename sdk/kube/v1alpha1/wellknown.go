package v1alpha1

import (
	"math"
	"strconv"
)

// Dollars writes an amount for people, to a hundredth of a cent; empty for one that is unknown or no amount.
func Dollars(amount float64) string {
	if math.IsNaN(amount) || amount <= 0 || amount > 1e9 {
		return ""
	}
	return strconv.FormatFloat(math.Round(amount*1e4)/1e4, 'f', -1, 64)
}

// Keys that workload owners set.
const (
	// AnnotationInterruptionPenalty on a Pod: dollars lost when the Pod is interrupted, as a quantity.
	AnnotationInterruptionPenalty = GroupName + "/interruption-penalty"
	// AnnotationReclamationPenalty on a Pod: dollars of value tied to the very machine it runs on, as a quantity.
	AnnotationReclamationPenalty = GroupName + "/reclamation-penalty"
	// AnnotationIgnore on a Pod, value "true": the pod controller makes no CapacityRequest for it.
	AnnotationIgnore = GroupName + "/ignore"
	// AnnotationDoNotDisrupt on a Pod, value "true": evicted last, and not in the first half of a drain's grace.
	AnnotationDoNotDisrupt = GroupName + "/do-not-disrupt"
)

// Keys that BigFleet sets.
const (
	// LabelOwnedByPod on a CapacityRequest: UID of the Pod whose demand it states.
	LabelOwnedByPod = GroupName + "/owned-by-pod"
	// AnnotationReduced on a CapacityRequest: what of the Pod's constraints could not be expressed.
	AnnotationReduced = GroupName + "/reduced"
	// LabelMachineID on a Node (label; annotation when the id is no legal label value): the machine behind the Node.
	// The same key is a synthetic requirement of bootstrap requests.
	LabelMachineID = GroupName + "/machine-id"
	// AnnotationCordonReason on a Node that a person cordoned: why. Its machine is withheld for a while after its drain.
	AnnotationCordonReason = GroupName + "/cordon-reason"
	// AnnotationCordonedBy on such a Node: the person, as the API server knows them.
	AnnotationCordonedBy = GroupName + "/cordoned-by"
	// AnnotationDrain on a Node: state of the drain that the operator runs on it, as JSON.
	AnnotationDrain = GroupName + "/drain"
	// RequirementKubeletVersion as a requirement key: the kubelet version that a new node should run.
	RequirementKubeletVersion = GroupName + "/kubelet-version"
)

// Types of conditions.
const (
	// ConditionValid on a CapacityRequest: False when the operator cannot translate the object; the message names the field.
	ConditionValid = "Valid"
	// ConditionFulfilled on a CapacityRequest: whether capacity is bound or on its way, with the shard's reason.
	ConditionFulfilled = "Fulfilled"
	// ConditionProvisioned on an UpcomingNode: the host exists.
	ConditionProvisioned = "Provisioned"
	// ConditionNodeReady on an UpcomingNode: the Node joined and is Ready.
	ConditionNodeReady = "NodeReady"
	// ConditionDraining on an UpcomingNode: the node is being emptied.
	ConditionDraining = "Draining"
	// ConditionInService on an UpcomingNode: False while its node takes no Pods because somebody cordoned or tainted it, or
	// because it has not been Ready for long.
	ConditionInService = "InService"
)
