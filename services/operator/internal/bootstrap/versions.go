package bootstrap

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const (
	versionEvery = 5 * time.Minute
	olderMax     = 3 // minor versions that a kubelet may lag behind the API server
)

// Versions knows the API server's version: cached, read again every few minutes and after a failure (OP-7.11).
type Versions struct {
	Read func(ctx context.Context) (string, error)

	mu   sync.Mutex
	last string
	at   time.Time
}

// Get returns the version.
func (v *Versions) Get(ctx context.Context) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last != "" && time.Since(v.at) < versionEvery {
		return v.last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, mintTimeout)
	defer cancel()
	read, err := v.Read(ctx)
	if err != nil {
		if v.last != "" { // an old answer is better than none; the next request asks again
			return v.last, nil
		}
		return "", err
	}
	v.last, v.at = read, time.Now()
	return read, nil
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
			"kubelet %s does not fit API server %s: it must not be newer, and at most %d minor versions older", kubelet, server, olderMax)
	}
	return nil
}
