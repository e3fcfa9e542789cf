package provider_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// PROV-30, WIRE-4.4: transitions that may wait times bytes of boot data has a bound of its own. What does not fit is refused with
// nothing started, and fits when others have ended.
func TestBootDataOfAllTransitionsIsBounded(t *testing.T) {
	c, may := newCloud(), make(chan struct{})
	r := startCloud(t, c, provider.WithOfferings(small(17)))
	for i := range 17 {
		r.mustCreate(t, id(i))
	}
	c.mu.Lock()
	c.hook = func(ctx context.Context, k provider.Kind, _ provider.Machine) error {
		if k == provider.Configure {
			select {
			case <-may:
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	}
	c.mu.Unlock()
	blob := make([]byte, provider.BlobBytesMax)
	configure := func(i int) error {
		_, err := r.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{MachineId: id(i), ClusterId: "red", ShardId: "s", ShardEpoch: 1,
			SequenceNumber: r.token(), BootstrapBlob: blob}))
		return err
	}
	for i := range 16 {
		if err := configure(i); err != nil {
			t.Fatalf("the boot data of %d transitions: %v", i+1, err)
		}
	}
	if err := configure(16); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("272 MiB of boot data: %v", err)
	}
	r.settles(t, id(16), bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE)
	close(may)
	for i := range 16 {
		r.settles(t, id(i), bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED)
	}
	if err := configure(16); err != nil {
		t.Errorf("after the others ended: %v", err)
	}
}
