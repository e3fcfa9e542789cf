// Package devices reads what the claims of Pods ask for as devices that a machine offers (OP-15.32).
//
// A machine offers so many devices of a DeviceClass as a resource, and attributes that all of them have as labels. Claims that say more than that cannot
// be bought, and Of says which field it is.
//
// It does no I/O and decides nothing else about capacity. It is safe for concurrent use. Start at Store.Of. Tests cite the operator specification as OP-n.n.
package devices

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Demand is what the claims of a Pod ask of one machine.
type Demand struct {
	Devices    map[string]int64 // by DeviceClass
	Attributes []corev1.NodeSelectorRequirement
}

const (
	requestsMax = 32  // of one Pod that are counted
	countMax    = 512 // devices of one request
)

// Resource is the resource of a machine that counts its devices of a DeviceClass. Kubernetes gives the same name to the extended resource of a class.
func Resource(class string) corev1.ResourceName {
	return corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class)
}

// add counts the requests of one claim. why names what cannot be counted.
func (d *Demand) add(spec *resourcev1.ResourceClaimSpec, class func(name string) bool) (why string) {
	requests := spec.Devices.Requests
	if len(requests) > requestsMax {
		return fmt.Sprintf("has more than %d requests", requestsMax)
	}
	for i := range requests {
		if why = d.request(&requests[i], class); why != "" {
			return fmt.Sprintf("request %q %s", requests[i].Name, why)
		}
	}
	for _, c := range spec.Devices.Constraints {
		if len(c.Requests) != 1 || several(requests, c.Requests[0]) {
			return "has constraints between devices"
		}
	}
	return ""
}

// several reports whether a request may be for more than one device.
func several(requests []resourcev1.DeviceRequest, name string) bool {
	return slices.ContainsFunc(requests, func(r resourcev1.DeviceRequest) bool {
		return r.Name == name && (r.Exactly == nil || r.Exactly.Count > 1)
	})
}

func (d *Demand) request(r *resourcev1.DeviceRequest, class func(name string) bool) (why string) {
	x := r.Exactly
	switch {
	case x == nil:
		return "is a choice (firstAvailable)"
	case x.AllocationMode != "" && x.AllocationMode != resourcev1.DeviceAllocationModeExactCount:
		return "has allocationMode " + string(x.AllocationMode)
	case x.AdminAccess != nil && *x.AdminAccess:
		return "has adminAccess"
	case x.Capacity != nil:
		return "has capacity, a part of a device"
	case x.Count < 0 || x.Count > countMax:
		return fmt.Sprintf("has count %d, of which at most %d is counted", x.Count, countMax)
	case !class(x.DeviceClassName):
		return fmt.Sprintf("names the DeviceClass %s, which does not exist", x.DeviceClassName)
	}
	for i, s := range x.Selectors {
		if s.CEL == nil {
			return fmt.Sprintf("has a selector (number %d) without CEL", i+1)
		}
		terms, ok := attributes(s.CEL.Expression)
		if !ok {
			return fmt.Sprintf("has a selector (number %d) that does more than compare attributes with ==", i+1)
		}
		d.Attributes = append(d.Attributes, terms...)
	}
	if d.Devices == nil {
		d.Devices = map[string]int64{}
	}
	d.Devices[x.DeviceClassName] += max(1, x.Count)
	return ""
}
