package devices

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// comparison is device.attributes["DOMAIN"].NAME == VALUE, where VALUE is a text without escapes, a number, or true or false.
var comparison = regexp.MustCompile(`^\s*device\.attributes\[(?:"([^"\\]+)"|'([^'\\]+)')\]\.([A-Za-z_][A-Za-z0-9_]*)\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)'|(-?[0-9]+|true|false))\s*$`)

// attributes reads a CEL expression that compares attributes of a device with values and joins that with &&. An attribute is the label DOMAIN/NAME of
// the machine. ok is false for every other expression, and for one whose attribute or value can be no label.
func attributes(expression string) (out []corev1.NodeSelectorRequirement, ok bool) {
	for part := range strings.SplitSeq(expression, "&&") { // a text with && in it leaves parts that match nothing
		m := comparison.FindStringSubmatch(part)
		if m == nil {
			return nil, false
		}
		key, value := m[1]+m[2]+"/"+m[3], m[4]+m[5]+m[6]
		if len(validation.IsQualifiedName(key)) > 0 || value == "" || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, false
		}
		out = append(out, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	return out, true
}
