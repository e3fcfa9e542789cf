package provider_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// PROV-30, PROV-8.6: machines times the metadata that shards have stored with each has a bound of its own, and so has the name of a cluster. What does not fit
// is refused with nothing started, and fits when another machine was drained.
func TestMetadataOfAllMachinesIsBounded(t *testing.T) {
	const each, all = 1 << 20, 4 << 20
	r := startCloud(t, newCloud(), provider.WithOfferings(small(5)), provider.WithBindingsBytes(all))
	for i := range 5 {
		r.mustCreate(t, id(i))
	}
	configure := func(i int, cluster string, bytes int) error {
		_, err := r.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{MachineId: id(i), ClusterId: cluster, ShardId: "s", ShardEpoch: 1,
			SequenceNumber: r.token(), ShardMetadata: map[string]string{"k": strings.Repeat("v", bytes-1)}}))
		return err
	}
	if err := configure(4, strings.Repeat("c", 4097), 1); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Fatalf("a name of 4,097 bytes: %v", err)
	}
	for i := range 3 {
		if err := configure(i, "red", each); err != nil {
			t.Fatalf("the metadata of %d machines: %v", i+1, err)
		}
	}
	for _, i := range []int{3, 4} {
		if err := configure(i, "red", each); connect.CodeOf(err) != connect.CodeResourceExhausted { // the names of the clusters count, too
			t.Fatalf("one machine more: %v", err)
		}
		r.settles(t, id(i), bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE)
	}
	if err := configure(4, "red", 1000); err != nil {
		t.Errorf("a little more: %v", err)
	}
	r.settles(t, id(0), bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED)
	if _, err := r.Drain(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: id(0), ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()})); err != nil {
		t.Fatal(err)
	}
	r.settles(t, id(0), bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE)
	if err := configure(3, "red", each); err != nil {
		t.Errorf("after another machine was drained: %v", err)
	}
}
