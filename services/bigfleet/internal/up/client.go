package up

import (
	"errors"

	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
)

// Client reaches the API groups of a cluster that a world uses. The clientset of all groups would be most of what
// `go run ./services/bigfleet up` compiles (adr/0115).
type Client struct {
	core   *coreclient.CoreV1Client
	apps   *appsclient.AppsV1Client
	policy *policyclient.PolicyV1Client
}

func newClient(cfg *rest.Config) (Client, error) {
	core, err1 := coreclient.NewForConfig(cfg)
	apps, err2 := appsclient.NewForConfig(cfg)
	policy, err3 := policyclient.NewForConfig(cfg)
	return Client{core, apps, policy}, errors.Join(err1, err2, err3)
}

// CoreV1 is the group of Pods and Nodes.
func (c Client) CoreV1() coreclient.CoreV1Interface { return c.core }

// AppsV1 is the group of Deployments.
func (c Client) AppsV1() appsclient.AppsV1Interface { return c.apps }

// PolicyV1 is the group of disruption budgets.
func (c Client) PolicyV1() policyclient.PolicyV1Interface { return c.policy }
