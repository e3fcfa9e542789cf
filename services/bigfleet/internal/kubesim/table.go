package kubesim

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
)

// column is one of `kubectl get`, between NAME and AGE; a wide one shows with -o wide alone.
type column struct {
	name string
	wide bool
	cell func(*Object) any
}

// field shows what stands at a path.
func field(name, path string) column {
	parts := strings.Split(path, ".")
	return column{name: name, cell: func(o *Object) any { return at(o, parts...) }}
}

func (c column) onWide() column { c.wide = true; return c }

// at is what stands at a path of an object, "" for nothing.
func at(o *Object, path ...string) any {
	v, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if !found || err != nil {
		return ""
	}
	return v
}

// columns are those that a real API server, or the definition of the kind, gives.
func (r Resource) columns() []column {
	switch r.Kind {
	case "Pod":
		return []column{{name: "Ready", cell: readyContainers}, {name: "Status", cell: podStatus}, field("Node", "spec.nodeName").onWide()}
	case "Node":
		return []column{{name: "Status", cell: nodeStatus}, field("Version", "status.nodeInfo.kubeletVersion")}
	case "Deployment":
		return []column{{name: "Ready", cell: func(o *Object) any {
			return fmt.Sprintf("%d/%d", number(o, 0, "status", "readyReplicas"), number(o, 1, "spec", "replicas"))
		}}}
	case "Event":
		return []column{field("Type", "type"), field("Reason", "reason"), field("Kind", "involvedObject.kind"), field("Object", "involvedObject.name"), field("Message", "message")}
	case "PodDisruptionBudget":
		return []column{field("Min available", "spec.minAvailable"), field("Max unavailable", "spec.maxUnavailable")}
	case "PriorityClass":
		return []column{field("Value", "value")}
	case "CapacityRequest":
		return []column{field("Phase", "status.phase"), field("Priority", "spec.priority"), column{name: "Reason", cell: fulfilledReason}.onWide()}
	case "AvailableCapacity":
		return []column{field("Availability", "spec.availability"), field("Available", "spec.availableCount"), field("Cost", "spec.cost"), field("Updated", "status.updatedAt").onWide()}
	case "UpcomingNode":
		return []column{field("Phase", "status.phase"), field("Node", "status.nodeRef.name"), field("Error", "status.lastError").onWide()}
	}
	return nil
}

func readyContainers(o *Object) any {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
	ready := 0
	if at(o, "status", "phase") == "Running" {
		ready = len(containers)
	}
	return fmt.Sprintf("%d/%d", ready, len(containers))
}

func podStatus(o *Object) any {
	if o.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return at(o, "status", "phase")
}

func nodeStatus(o *Object) any {
	status := "NotReady"
	if c := conditionOf(o, "Ready"); c["status"] == "True" {
		status = "Ready"
	}
	if at(o, "spec", "unschedulable") == true {
		status += ",SchedulingDisabled"
	}
	return status
}

func fulfilledReason(o *Object) any {
	if reason, ok := conditionOf(o, "Fulfilled")["reason"]; ok {
		return reason
	}
	return ""
}

func conditionOf(o *Object, kind string) map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

// asTable says that the client prints what it gets, as `kubectl get` does.
func asTable(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "as=Table") }

// tableOf is objects of one kind as the table that a client prints.
func tableOf(kind Resource, version string, objects ...*Object) map[string]any {
	columns := kind.columns()
	define := func(name string, priority int, format string) map[string]any {
		return map[string]any{"name": name, "type": "string", "format": format, "description": "", "priority": priority}
	}
	defined := []any{define("Name", 0, "name")}
	for _, c := range columns {
		priority := 0
		if c.wide {
			priority = 1
		}
		defined = append(defined, define(c.name, priority, ""))
	}
	defined = append(defined, define("Age", 0, ""))
	rows := make([]any, len(objects))
	for i, o := range objects {
		cells := []any{o.GetName()}
		for _, c := range columns {
			cells = append(cells, fmt.Sprint(c.cell(o)))
		}
		cells = append(cells, duration.HumanDuration(time.Since(o.GetCreationTimestamp().Time)))
		rows[i] = map[string]any{"cells": cells, "object": map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o.Object["metadata"]}}
	}
	return map[string]any{"kind": "Table", "apiVersion": metav1.SchemeGroupVersion.String(),
		"metadata": map[string]any{"resourceVersion": version}, "columnDefinitions": defined, "rows": rows}
}
