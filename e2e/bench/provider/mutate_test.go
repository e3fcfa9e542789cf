package provider_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

const callers = 64

// machineOf gets one machine as the bare handler shall answer with it.
func machineOf(b *testing.B, f *fleet) *pb.Machine {
	b.Helper()
	m, err := f.Get(b.Context(), connect.NewRequest(&pb.MachineRef{Id: f.take(b, 1)[0]}))
	if err != nil {
		b.Fatal(err)
	}
	return m.Msg
}

// PROV-25.1: acks of Create with 100,000 machines in a bbolt file, from 64 callers, against a bare handler whose acks share an
// append and an fsync: as many as they can send (the rate and the ratio), and 2,000 a second (the p99): callers that never
// pause would measure their own queue.
func BenchmarkAcks(b *testing.B) {
	const batch = 800
	machines := scaled(100_000)
	f := start(b, machines, 0)
	floor := startBare(b, machineOf(b, f))
	b.Run("rounds", func(b *testing.B) {
		var bareAcks, bareFlood, acks, flood times
		var ids []string
		pace := func(t *times, ids []string, call func(string) error) {
			paced(callers, 500*time.Microsecond, ids, t, call)
		}
		some := make([]string, 2*batch)
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.1", Size: map[string]any{"machines": machines, "callers": callers}, WorkloadSum: "acks",
			Floor: measure.Floor{Probe: "P-ack", Parts: []measure.Part{{
				Prepare: func() { rest(); pace(&bareAcks, some[:batch], floor.create) },
				Run:     func() { together(callers, some, &bareFlood, floor.create) },
			}}},
			Prepare: func() {
				rest()
				pace(&acks, f.take(b, batch), f.create)
				ids = f.take(b, 2*batch)
			},
			Subject: func() { together(callers, ids, &flood, f.create) },
			Check:   func() error { return errors.Join(acks.failed(), flood.failed(), bareAcks.failed(), bareFlood.failed()) },
			Oracle:  "every ack has an operation id",
			Bounds: func(median float64) []measure.Bound {
				return []measure.Bound{
					measure.AtMost("p99 of an ack at 2,000/s: 5 ms, or 1.5 times that of a bare handler", "ns", acks.quantile(0.99), max(float64(5*time.Millisecond), 1.5*bareAcks.quantile(0.99))),
					measure.Shown("p99 at 2,000/s over that of the bare handler", "ratio", over(&acks, &bareAcks, 5*time.Millisecond)),
					measure.Shown("p99 of the bare handler at 2,000/s", "ns", bareAcks.quantile(0.99)),
					measure.Shown("p50 of an ack at 2,000/s", "ns", acks.quantile(0.5)),
					measure.Shown("p50 of the bare handler at 2,000/s", "ns", bareAcks.quantile(0.5)),
					measure.NotBelow("acks sustained", "1/s", 2*batch/median*1e9, 2000),
					measure.Shown("p99 of an ack at that rate", "ns", flood.quantile(0.99)),
				}
			},
		})
	})
}

// over is a p99 over that of the floor, which counts as what would allow for the absolute bound: at most 1.5 is the clause.
func over(ours, floor *times, bound time.Duration) float64 {
	return ours.quantile(0.99) / max(floor.quantile(0.99), float64(bound)/1.5)
}

// rest lets the completions of what ran before end, so that they are not counted against what runs next.
func rest() { time.Sleep(3 * took) }

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

// PROV-25.7, scenario 30: 500 mutations a second while full lists of 500,000 run back to back, against the same without; and
// against a bare handler that sends as many bytes beside as many acks, because two cores that move half a gigabyte a second
// have less time for each call.
func BenchmarkAcksWhileListing(b *testing.B) {
	machines, batch := scaled(500_000), scaledBatch(500)
	f := start(b, machines, 0)
	floor := startBare(b, machineOf(b, f))
	some := make([]string, batch)
	b.Run("rounds", func(b *testing.B) {
		var beside, alone, bareBeside, bareAlone times
		var ids []string
		var lists, downloads int
		var failed error
		var size int64
		var last bytes.Buffer // the newest list that ran beside mutations
		pace := func(t *times, ids []string, call func(string) error) {
			paced(callers, 2*time.Millisecond, ids, t, call)
		}
		list := func() error {
			last.Reset()
			n, err := f.raw(&pb.ListFilter{}, &last)
			size = n
			lists++
			return err
		}
		take := func() { rest(); ids = f.take(b, batch) }
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.7", Size: map[string]any{"machines": machines, "rate": 500}, WorkloadSum: "acks",
			Floor: measure.Floor{Probe: "without lists", Parts: []measure.Part{{Prepare: take, Run: func() { pace(&alone, ids, f.create) }}}},
			Prepare: func() {
				take()
				if size > 0 {
					pace(&bareAlone, some, floor.create)
					failed = errors.Join(failed, during(func() { pace(&bareBeside, some, floor.create) }, func() error { downloads++; return floor.download(size) }))
				}
			},
			Subject: func() { failed = errors.Join(failed, during(func() { pace(&beside, ids, f.create) }, list)) },
			Check: func() error {
				return errors.Join(failed, beside.failed(), bareBeside.failed(), everyOnce(last.Bytes(), machines))
			},
			Oracle: "a list beside mutations has every machine once",
			Bounds: func(float64) []measure.Bound {
				ours, bare := beside.quantile(0.99)/alone.quantile(0.99), bareBeside.quantile(0.99)/bareAlone.quantile(0.99)
				return []measure.Bound{
					measure.AtMost("p99 of an ack over that without lists: 2, or 1.5 times that of a bare handler", "ratio", ours, max(2, 1.5*bare)),
					measure.Shown("over that of the bare handler", "ratio", ours/max(bare, 2/1.5)),
					measure.Shown("the same of the bare handler", "ratio", bare),
					measure.Shown("p99 of an ack without lists", "ns", alone.quantile(0.99)), measure.Shown("p99 of an ack", "ns", beside.quantile(0.99)),
					measure.Shown("p99 of the bare handler without downloads", "ns", bareAlone.quantile(0.99)),
					measure.Shown("p99 of the bare handler", "ns", bareBeside.quantile(0.99)),
					measure.Shown("full lists", "count", float64(lists)), measure.Shown("downloads of the same size", "count", float64(downloads)),
				}
			},
		})
	})
}

// during repeats one thing as long as another runs.
func during(run func(), again func() error) (failed error) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			failed = errors.Join(failed, again())
		}
	}()
	run()
	close(done)
	<-ended
	return failed
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
