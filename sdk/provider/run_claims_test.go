package provider_test

import (
	"math"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

func (r *running) claim(t testing.TB, shard string, epoch int64) error {
	t.Helper()
	answer, err := r.admin.ClaimEpoch(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ClaimEpochRequest{ShardId: shard, ShardEpoch: epoch}))
	if err == nil && (answer.Msg.GetShardEpoch() != epoch || len(answer.Msg.GetStoreId()) != 32) {
		t.Errorf("claim of %d: %v", epoch, answer.Msg)
	}
	return err
}

func (r *running) create(t testing.TB, machine, shard string, epoch, sequence int64) error {
	t.Helper()
	_, err := r.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: machine, ShardId: shard, ShardEpoch: epoch, SequenceNumber: sequence}))
	return err
}

func fenceDetail(err error) *bigfleetv1alpha1.FenceDetail {
	for _, d := range err.(*connect.Error).Details() {
		if v, _ := d.Value(); v != nil {
			if f, ok := v.(*bigfleetv1alpha1.FenceDetail); ok {
				return f
			}
		}
	}
	return nil
}

// PROV-6.18, 6.19: a claim fences the older process of the shard on every machine, also on those without a mark, and no
// other shard; it moves no mark, survives a restart, and is served while mutations are paused.
func TestAClaimFencesTheOlderProcess(t *testing.T) {
	c, file := newCloud(), filepath.Join(t.TempDir(), "p.db")
	r := startCloud(t, c, provider.WithStateFile(file))
	if err := r.claim(t, "a", 7); err != nil {
		t.Fatal(err)
	}
	for _, machine := range []string{id(0), "no-such-machine"} {
		err := r.create(t, machine, "a", 6, math.MaxInt64)
		if connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Fatalf("%s: an older process created: %v", machine, err)
		}
		if d := fenceDetail(err); d == nil || d.GetMarkEpoch() != 7 || d.GetOfferedEpoch() != 6 || d.GetMachineId() != machine {
			t.Errorf("%s: detail %v", machine, d)
		}
	}
	if err := r.create(t, id(1), "b", 1, 1); err != nil {
		t.Errorf("another shard is fenced: %v", err)
	}
	if _, err := r.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id(2)})); err != nil {
		t.Errorf("an unfenced caller is fenced: %v", err)
	}
	if err := r.claim(t, "a", 7); err != nil {
		t.Errorf("the same claim again: %v", err)
	}
	if err := r.claim(t, "a", 6); connect.CodeOf(err) != connect.CodeFailedPrecondition || fenceDetail(err).GetMarkEpoch() != 7 {
		t.Errorf("a lower claim: %v", err)
	}
	if _, err := r.admin.SetMutations(t.Context(), connect.NewRequest(&bigfleetv1alpha1.SetMutationsRequest{Mode: bigfleetv1alpha1.MutationMode_MUTATION_MODE_PAUSED, Reason: "test"})); err != nil {
		t.Fatal(err)
	}
	if err := r.claim(t, "a", 8); err != nil {
		t.Errorf("a claim while paused: %v", err)
	}
	if _, err := r.admin.SetMutations(t.Context(), connect.NewRequest(&bigfleetv1alpha1.SetMutationsRequest{Mode: bigfleetv1alpha1.MutationMode_MUTATION_MODE_RUNNING, Reason: "test"})); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = startCloud(t, c, provider.WithStateFile(file))
	if err := r.create(t, id(0), "a", 7, 1); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("after a restart epoch 7 passes: %v", err)
	}
	if err := r.create(t, id(0), "a", 8, math.MinInt64); err != nil {
		t.Errorf("the claimed epoch is refused, or a refusal moved the mark: %v", err)
	}
}
