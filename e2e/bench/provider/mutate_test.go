package provider_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

const callers = 64

// fsyncs is the floor of an acknowledgement: 512 bytes appended and synced on the disk of the state file, one at a time.
func fsyncs(b *testing.B, n int, t *times) measure.Floor {
	b.Helper()
	file, err := os.Create(b.TempDir() + "/floor")
	if err != nil {
		b.Fatal(err)
	}
	entry := make([]byte, 512)
	run := func() {
		for range n {
			t.of(func() error {
				if _, err := file.Write(entry); err != nil {
					return err
				}
				return file.Sync()
			})
		}
	}
	return measure.Floor{Probe: "P-fsync", Parts: []measure.Part{{Run: run}}, Close: func() { _ = file.Close() }}
}

// PROV-25.1: acks of Create with 100,000 machines in a bbolt file, from 64 callers. As many as they can send (the rate), beside
// one fsync per batch of 64, which is the best that a group commit can do; and 2,000 a second (the p99): callers that never
// pause would measure their own queue.
func BenchmarkAcks(b *testing.B) {
	const batch = 800
	machines := scaled(100_000)
	f := start(b, machines, 0)
	b.Run("rounds", func(b *testing.B) {
		var syncs, acks, flood times
		var ids []string
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.1", Size: map[string]any{"machines": machines, "callers": callers}, WorkloadSum: "acks",
			Floor: fsyncs(b, 2*batch/callers, &syncs),
			Prepare: func() {
				paced(callers, 500*time.Microsecond, f.take(b, batch), &acks, f.create)
				ids = f.take(b, 2*batch)
			},
			Subject: func() { together(callers, ids, &flood, f.create) },
			Check:   func() error { return errors.Join(acks.failed(), flood.failed()) },
			Oracle:  "every ack has an operation id",
			Bounds: func(median float64) []measure.Bound {
				return []measure.Bound{
					measure.AtMost("p99 of an ack at 2,000/s: 5 ms, or 12 times the p50 of an fsync", "ns", acks.quantile(0.99), max(float64(5*time.Millisecond), 12*syncs.quantile(0.5))),
					measure.Shown("p50 of an ack at 2,000/s", "ns", acks.quantile(0.5)),
					measure.Shown("p50 of an fsync", "ns", syncs.quantile(0.5)), measure.Shown("p99 of an fsync", "ns", syncs.quantile(0.99)),
					measure.NotBelow("acks sustained", "1/s", 2*batch/median*1e9, 2000),
					measure.Shown("p99 of an ack at that rate", "ns", flood.quantile(0.99)),
				}
			},
		})
	})
}

// PROV-25.2: the same with 500,000 machines, against 5,000.
func BenchmarkAcksByFleet(b *testing.B) {
	const small, batch = 5_000, 160
	large := scaled(500_000)
	big, little := start(b, large, 0), start(b, small, 0)
	b.Run("rounds", func(b *testing.B) {
		var ours, floor times
		var ids, few []string
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.2", Size: map[string]any{"machines": large, "callers": callers}, WorkloadSum: "acks",
			Floor: measure.Floor{Probe: "5,000 machines", Parts: []measure.Part{{
				Prepare: func() { few = little.take(b, batch) },
				Run:     func() { together(callers, few, &floor, little.create) },
			}}},
			Prepare: func() { ids = big.take(b, batch) },
			Subject: func() { together(callers, ids, &ours, big.create) },
			Check:   ours.failed, Oracle: "every ack has an operation id",
			Bounds: func(float64) []measure.Bound {
				return []measure.Bound{
					measure.AtMost("p99 of an ack over that with 5,000 machines", "ratio", ours.quantile(0.99)/floor.quantile(0.99), 1.5),
					measure.Shown("p99 of an ack", "ns", ours.quantile(0.99)),
				}
			},
		})
	})
}

// PROV-25.7, scenario 30: 500 mutations a second while full lists of 500,000 run back to back, against the same without.
func BenchmarkAcksWhileListing(b *testing.B) {
	const batch = 500
	machines := scaled(500_000)
	f := start(b, machines, 0)
	pace := func(t *times, ids []string) { paced(callers, 2*time.Millisecond, ids, t, f.create) }
	b.Run("rounds", func(b *testing.B) {
		var beside, alone times
		var ids []string
		var lists int
		var last bytes.Buffer // the newest list that ran beside mutations
		var failed error
		take := func() { ids = f.take(b, batch) }
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.7", Size: map[string]any{"machines": machines, "rate": 500}, WorkloadSum: "acks",
			Floor:   measure.Floor{Probe: "without lists", Parts: []measure.Part{{Prepare: take, Run: func() { pace(&alone, ids) }}}},
			Prepare: take,
			Subject: func() {
				done, ended := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					for {
						select {
						case <-done:
							return
						default:
						}
						last.Reset()
						if _, err := f.raw(&pb.ListFilter{}, &last); err != nil {
							failed = err
						}
						lists++
					}
				}()
				pace(&beside, ids)
				close(done)
				<-ended
			},
			Check:  func() error { return errors.Join(failed, beside.failed(), everyOnce(last.Bytes(), machines)) },
			Oracle: "a list beside mutations has every machine once",
			Bounds: func(float64) []measure.Bound {
				return []measure.Bound{
					measure.AtMost("p99 of an ack over that without lists", "ratio", beside.quantile(0.99)/alone.quantile(0.99), 2),
					measure.Shown("p99 of an ack without lists", "ns", alone.quantile(0.99)), measure.Shown("p99 of an ack", "ns", beside.quantile(0.99)),
					measure.Shown("full lists", "count", float64(lists)),
				}
			},
		})
	})
}

// everyOnce says whether an encoded list has that many machines, none twice (PROV-10.4).
func everyOnce(list []byte, want int) error {
	seen := make(map[string]bool, want)
	err := fields(list, func(n protowire.Number, machine []byte) error {
		if n != 1 {
			return nil
		}
		return fields(machine, func(n protowire.Number, id []byte) error {
			if n == 1 && seen[string(id)] {
				return fmt.Errorf("%s is listed twice", id)
			} else if n == 1 {
				seen[string(id)] = true
			}
			return nil
		})
	})
	if err == nil && len(seen) != want {
		err = fmt.Errorf("a list has %d machines of %d", len(seen), want)
	}
	return err
}

// fields visits the length-delimited fields of a message.
func fields(message []byte, visit func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := visit(number, value); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}
