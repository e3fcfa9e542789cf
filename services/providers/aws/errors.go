package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"github.com/aws/smithy-go"
)

// classes are the error codes that say more than "no" (PROV-15.6). Codes are those of the API references of EC2, SSM and SQS, and
// of the errors of CreateFleet. Every other code ends the operation.
var classes = map[string]func(error) error{}

func init() {
	for _, code := range []string{ // another pool may have some
		"InsufficientInstanceCapacity", "InsufficientCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
		"InsufficientFreeAddressesInSubnet", "ReservationCapacityExceeded", "SpotMaxPriceTooLow", "UnfulfillableCapacity",
	} {
		classes[code] = provider.OutOfCapacity
	}
	for _, code := range []string{
		"InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded", "VcpuLimitExceeded", "VolumeLimitExceeded",
		"MaxFleetCountExceeded",
	} {
		classes[code] = provider.Quota
	}
	for _, code := range []string{
		"AccessDenied", "AccessDeniedException", "AuthFailure", "Blocked", "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId",
		"NotAuthorized", "OptInRequired", "PendingVerification", "RequestExpired", "SignatureDoesNotMatch", "UnauthorizedOperation",
		"UnrecognizedClientException",
	} {
		classes[code] = provider.Credentials
	}
	for _, code := range []string{
		"InternalError", "InternalFailure", "InternalServerError", "InternalServiceError", "RequestTimeout", "ServerInternal", "ServiceUnavailable",
		"Unavailable",
	} {
		classes[code] = provider.Transient
	}
	for _, code := range []string{
		"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException", "RequestThrottled", "RequestThrottledException",
		"EC2ThrottledException",
	} {
		classes[code] = func(err error) error { return provider.RetryAfter(throttlePause, err) }
	}
}

// throttlePause is how long a call rests after AWS asked for fewer.
const throttlePause = 2 * time.Second

// classify says what an error of AWS means. An error without a code did not come from AWS: the network, or missing credentials.
func classify(err error) error {
	if err == nil {
		return nil
	}
	code := codeOf(err)
	if as := classes[code]; as != nil {
		return as(err)
	}
	var answer interface{ HTTPStatusCode() int }
	status := 0
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	var api smithy.APIError
	switch {
	case status == http.StatusTooManyRequests:
		return provider.RetryAfter(throttlePause, err)
	case status >= http.StatusInternalServerError: // with or without a code: what stands before AWS answers without
		return provider.Transient(err)
	case errors.As(err, &api) && api.ErrorFault() == smithy.FaultServer:
		return provider.Transient(err)
	case errors.As(err, &api):
		return err
	case strings.Contains(err.Error(), "get identity") || strings.Contains(err.Error(), "refresh cached credentials"):
		return provider.Credentials(err)
	}
	return provider.Transient(err)
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// isGone says that an error means that the instance does not exist.
func isGone(err error) bool {
	code := codeOf(err)
	return code == "InvalidInstanceID.NotFound" || code == "InvalidInstanceID.Malformed"
}

// call makes one call of AWS under the limits of its name.
func call[T any](ctx context.Context, name string, do func(context.Context) (T, error)) (out T, err error) {
	err = provider.Call(ctx, name, func(ctx context.Context) (err error) {
		out, err = do(ctx)
		return classify(err)
	})
	return out, err
}

// emptyPause is how long a pool that had no capacity is not asked again. AWS answers the same for minutes, and each question
// costs budget that other pools need.
const emptyPause = 3 * time.Minute

// emptyPools remembers pools that were out of capacity.
type emptyPools struct {
	mu    sync.Mutex
	since map[poolKey]time.Time
	now   func() time.Time
}

type poolKey struct {
	instanceType, zone string
	capacity           provider.CapacityType
}

func poolOf(m provider.Machine) poolKey { return poolKey{m.InstanceType, m.Zone, m.CapacityType} }

func (k poolKey) String() string {
	return fmt.Sprintf("%s %s in %s", capacityName(k.capacity), k.instanceType, k.zone)
}

func capacityName(c provider.CapacityType) string {
	switch c {
	case provider.Spot:
		return "spot"
	case provider.Reserved:
		return "reserved"
	}
	return "on_demand"
}

// check answers for a pool that said a moment ago that it has nothing.
func (e *emptyPools) check(k poolKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	since, known := e.since[k]
	if !known {
		return nil
	}
	age := e.now().Sub(since)
	if age >= emptyPause {
		delete(e.since, k)
		return nil
	}
	return provider.OutOfCapacity(fmt.Errorf("%s had no capacity %s ago; it is retried in %s", k, age.Round(time.Second), (emptyPause - age).Round(time.Second)))
}

func (e *emptyPools) note(k poolKey, err error) {
	class, _ := provider.ClassOf(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		delete(e.since, k)
	case class == provider.ClassCapacity:
		e.since[k] = e.now()
	}
}

// count is how many pools are empty now.
func (e *emptyPools) count() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, since := range e.since {
		if e.now().Sub(since) < emptyPause {
			n++
		}
	}
	return n
}

// ErrorCode, ErrorMessage, ErrorFault and Error make the errors inside of an answer of CreateFleet like those of a call.
func (e *launchError) ErrorCode() string             { return e.code }
func (e *launchError) ErrorMessage() string          { return e.message }
func (e *launchError) ErrorFault() smithy.ErrorFault { return smithy.FaultClient }
func (e *launchError) Error() string                 { return e.code + ": " + e.message }
