package certs

import (
	"context"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// ours marks Secrets that this command may replace. Others of the same name were brought by somebody.
const ours = "bigfleet.lucy.sh/issued-by"

// secrets is what is needed of the API server.
type secrets interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, s *corev1.Secret, o metav1.CreateOptions) (*corev1.Secret, error)
	Update(ctx context.Context, s *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error)
}

func newSecrets(a *app.App) *cobra.Command {
	var ca, namespace string
	var texts []string
	c := &cobra.Command{
		Use: "secrets", Args: cobra.NoArgs,
		Short: "Create or renew a fleet's certificates as Secrets in one namespace",
		Long: `Creates the CA of a fleet, unless its Secret exists, and for each --secret a Secret with tls.crt, tls.key and ca.crt. A certificate that is
valid for another month and carries the requested names is kept; any other is replaced. A Secret that this command did not create is
never changed. The chart of the management plane runs this command as a Job and, daily, as a CronJob.`,
		Example: "  bigfleet certs secrets -n bigfleet-system --secret bigfleet-cluster-red=cluster/red",
		RunE: func(c *cobra.Command, _ []string) error {
			var all []wanted
			for _, text := range texts { // before anything is made
				w, err := parseWanted(text)
				if err != nil {
					return exit.Usagef("%v", err)
				}
				all = append(all, w)
			}
			config, err := a.Kube()
			if err != nil {
				return err
			}
			client, err := typed.NewForConfig(config)
			if err != nil {
				return err
			}
			return ensure(c.Context(), a.Out, client.Secrets(namespace), ca, all, time.Now())
		},
	}
	f := c.Flags()
	f.StringVarP(&namespace, "namespace", "n", "bigfleet-system", "namespace of the Secrets")
	f.StringVar(&ca, "authority", "bigfleet-ca", "Secret of the CA")
	f.StringArrayVar(&texts, "secret", nil, "a certificate, as `SECRET=IDENTITY[,HOST...]`; write the identity without bigfleet://, or server for a server without an identity; repeatable")
	return c
}

// ensure makes what is missing and renews what is not good for long.
func ensure(ctx context.Context, out io.Writer, api secrets, ca string, all []wanted, now time.Time) error {
	by, err := ensureAuthority(ctx, out, api, ca, now)
	if err != nil {
		return &exit.Error{Code: exit.Failed, Message: fmt.Sprintf("the CA in Secret %s: %v", ca, err), Err: err}
	}
	for _, w := range all {
		said, err := ensureOne(ctx, api, by, w, now)
		if err != nil {
			return &exit.Error{Code: exit.Failed, Message: fmt.Sprintf("Secret %s: %v", w.secret, err), Err: err}
		}
		_, _ = fmt.Fprintf(out, "%s  %s\n", w.secret, said)
	}
	return nil
}

func ensureAuthority(ctx context.Context, out io.Writer, api secrets, name string, now time.Time) (*authority, error) {
	found, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		var data map[string][]byte
		if data, err = newAuthority(name, now); err != nil {
			return nil, err
		}
		found, err = api.Create(ctx, secret(name, data), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // another run was faster, and its authority counts
			found, err = api.Get(ctx, name, metav1.GetOptions{})
		} else if err == nil {
			_, _ = fmt.Fprintf(out, "%s  a new authority\n", name)
		}
	}
	if err != nil {
		return nil, err
	}
	return readAuthority(found.Data, now)
}

func ensureOne(ctx context.Context, api secrets, by *authority, w wanted, now time.Time) (said string, err error) {
	found, err := api.Get(ctx, w.secret, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case missing:
	case err != nil:
		return "", err
	case found.Annotations[ours] == "":
		return "left unchanged: this command did not create it", nil
	case by.good(found.Data, w, now):
		return "good", nil
	}
	data, err := by.issue(w, now)
	if err != nil {
		return "", err
	}
	if !missing {
		found.Data = maps.Clone(data)
		_, err = api.Update(ctx, found, metav1.UpdateOptions{})
		return "renewed", err
	}
	if _, err = api.Create(ctx, secret(w.secret, data), metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return "made by another run", nil
	}
	return "new", err
}

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{ours: "bigfleet certs secrets"}}, Type: corev1.SecretTypeTLS, Data: data}
}
