package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/viakube"
)

// Kube is the way to the cluster that --kubeconfig and --kube-context name; by default the one that kubectl would use.
func (a *App) Kube() (*rest.Config, error) {
	if a.noContext != nil && a.flags.kubeconfig == "" && a.flags.kubeContext == "" {
		return nil, a.noContext
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.flags.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.flags.kubeContext}).ClientConfig()
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Reason: "no_cluster", Message: "no cluster can be reached: " + noWay(err), Hint: "Name a kubeconfig with --kubeconfig and a context with --kube-context; `bigfleet up --write-kubeconfig FILE` writes one of its simulated clusters", Err: err}
	}
	cfg.Timeout = a.flags.timeout
	return cfg, nil
}

// viaCurrent stands for the current context of the kubeconfig. It shows in the help text.
const viaCurrent = "(current)"

// throughKube lets every connection go through the API server of the management cluster (OPS-4.7).
func (a *App) throughKube(cfg *fleet.Config) error {
	name, namespace, _ := strings.Cut(a.flags.viaKube, "/")
	if name == viaCurrent {
		name = ""
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.flags.kubeconfig
	to, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if err != nil {
		return &exit.Error{Code: exit.Usage, Reason: "no_cluster", Message: fmt.Sprintf("--via-kube: %v", err), Hint: "Name the kubeconfig of the management cluster with --kubeconfig", Err: err}
	}
	way, err := viakube.New(to, cmp.Or(namespace, viakube.Namespace))
	if err != nil {
		return exit.Usagef("--via-kube: %v", err)
	}
	cfg.Dial = way.Dial
	cfg.Resolve = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // Pods go by their names
	if a.given.Changed("coordinator") || strings.Contains(a.flags.shard, ":") {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.flags.timeout)
	defer cancel()
	if cfg.Coordinator, err = way.Coordinators(ctx); err != nil {
		return &exit.Error{Code: exit.Unreachable, Reason: "no_coordinator", Message: "--via-kube: " + err.Error(), Hint: "Name the namespace with --via-kube=CONTEXT/NAMESPACE, or one shard with --shard POD:7780", Err: err}
	}
	return nil
}

// HasKube says whether a cluster was named on the command line.
func (a *App) HasKube() bool { return a.flags.kubeconfig != "" || a.flags.kubeContext != "" }

// KubeError turns an error of an API server into one of a verb.
func KubeError(what string, err error) error {
	out := &exit.Error{Code: exit.Failed, Message: what + ": " + err.Error(), Err: err}
	var dial *net.OpError
	var at *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.IsNotFound(err):
		out.Code = exit.NotFound
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		out.Code, out.Hint = exit.Denied, "Request the permission, or select another context with --kube-context"
	case apierrors.IsConflict(err):
		out.Code = exit.Refused
	case errors.As(err, &dial), errors.As(err, &at):
		out.Code, out.Hint = exit.Unreachable, "Check --kubeconfig and that the API server runs"
	}
	return out
}

// KubeContext is the name of the context that Kube uses; "" when none is named.
func (a *App) KubeContext() string {
	if a.flags.kubeContext != "" {
		return a.flags.kubeContext
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.flags.kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return ""
	}
	return raw.CurrentContext
}

// noWay words why there is no configuration; client-go's own words speak of unset variables.
func noWay(err error) string {
	if clientcmd.IsEmptyConfig(err) {
		return "there is no kubeconfig"
	}
	return err.Error()
}
