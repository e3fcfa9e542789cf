package nodeready

import (
	"errors"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Classify says what an error of an API server means to the provider SDK (PROV-15.6): credentials, a pause that the server
// asks for, or an error that may vanish. An answer about the object itself, such as NotFound, comes back as it is.
func Classify(err error) error {
	if err == nil {
		return nil
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return provider.RetryAfter(time.Duration(seconds)*time.Second, err)
	}
	var status apierrors.APIStatus
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return provider.Credentials(err)
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err), apierrors.IsConflict(err):
		return provider.Transient(err)
	case !errors.As(err, &status): // no answer at all: the API server is away
		return provider.Transient(err)
	}
	return err
}
