package bootstrap

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const (
	versionEvery      = 5 * time.Minute
	versionRetry      = 10 * time.Second // between two attempts to read it, whatever asks
	versionRetryFirst = time.Second      // the same as long as it was never read
	olderMax          = 3                // minor versions that a kubelet may lag behind the API server
)

// Versions knows the API server's version: cached, read again every few minutes and when it refuses a kubelet (OP-7.11).
// While it cannot be read the last one counts, and no caller waits behind another's attempt.
type Versions struct {
	Read func(ctx context.Context) (string, error)

	once    sync.Once
	reading chan struct{} // one place, held by the reader at work
	mu      sync.Mutex
	last    string
	at      time.Time // of last
	tried   time.Time // of the last attempt
	failed  error     // of it
}

// Get returns the version.
func (v *Versions) Get(ctx context.Context) (string, error) { return v.get(ctx, versionEvery) }

// Again returns the version, read now unless that was tried a moment ago.
func (v *Versions) Again(ctx context.Context) (string, error) { return v.get(ctx, versionRetry) }

func (v *Versions) get(ctx context.Context, age time.Duration) (string, error) {
	v.once.Do(func() { v.reading = make(chan struct{}, 1) })
	known := v.known()
	if known != "" && v.young(age) {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, mintTimeout)
	defer cancel()
	select {
	case v.reading <- struct{}{}:
	default:
		if known != "" {
			return known, nil // an old answer is better than none
		}
		select {
		case v.reading <- struct{}{}:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	defer func() { <-v.reading }()
	if known = v.known(); known != "" && v.young(age) || v.recent() {
		return known, v.missing()
	}
	read, err := v.Read(ctx)
	v.mu.Lock()
	v.tried, v.failed = time.Now(), err
	if err == nil {
		v.last, v.at = read, v.tried
	}
	v.mu.Unlock()
	return v.known(), v.missing()
}

func (v *Versions) known() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// young says that what is known is not older than that.
func (v *Versions) young(age time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return time.Since(v.at) < age
}

// recent says that an attempt was made a moment ago.
func (v *Versions) recent() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	pause := versionRetry
	if v.last == "" { // machines wait for it
		pause = versionRetryFirst
	}
	return !v.tried.IsZero() && time.Since(v.tried) < pause
}

// missing is why nothing is known; nil when something is.
func (v *Versions) missing() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last != "" {
		return nil
	}
	return v.failed
}

func checkSkew(kubelet, server string) error {
	k, err := version.ParseGeneric(kubelet)
	if err != nil {
		return problem(pb.BootstrapBlobResponse_ERROR_CLASS_SKEW, false, "the kubelet version %q cannot be read", kubelet)
	}
	s, err := version.ParseGeneric(server)
	if err != nil {
		return problem(pb.BootstrapBlobResponse_ERROR_CLASS_SKEW, false, "the API server's version %q cannot be read", server)
	}
	behind := int(s.Minor()) - int(k.Minor())
	if k.Major() != s.Major() || behind < 0 || behind > olderMax { // patch versions do not matter, as in Kubernetes' own policy
		return problem(pb.BootstrapBlobResponse_ERROR_CLASS_SKEW, false,
			"kubelet %s is not compatible with API server %s: it must not be newer, and at most %d minor versions older", kubelet, server, olderMax)
	}
	return nil
}
