package podcontroller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

// Reporter is what the events of the controller name as their reporting controller.
const Reporter = "bigfleet-podcontroller"

// WhyNot says why the controller makes no CapacityRequest for a Pod without a node, as far as the Pod itself shows it; empty if nothing in
// it prevents one. What the controller's flags exclude, it does not know.
func WhyNot(p *corev1.Pod) string { return translate.WhyNot(p) }
