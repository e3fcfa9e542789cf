package aggregate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// Group names of rows that are not gangs (OP-5.22). As with gangs, machines carry them for life.
const (
	shapePrefix   = "s1-"      // of requests of one size; followed by the hash of the size
	overflowGroup = "s1-other" // of the sizes without their own row
)

// scratch is memory reused by successive translations.
type scratch struct{ bytes []byte }

// newProfile is the profile of rows whose requests may differ in size.
func newProfile(need *pb.CapacityNeed, s *scratch) *profile {
	s.bytes = canonicalBytes(s.bytes[:0], need)
	return &profile{need: need, id: rowID(s.bytes)}
}

// newShapeProfile is the profile of rows whose requests are all of one size.
func newShapeProfile(need *pb.CapacityNeed, amounts []request.Amount, s *scratch) *profile {
	b := canonicalBytes(s.bytes[:0], need)
	p := &profile{need: need, family: sha256.Sum256(b), size: sizeOf(amounts), peers: need.Group}
	at := len(b)
	if p.peers != "" {
		b = strconv.AppendQuote(append(b, '\n'), p.peers)
	}
	for _, a := range amounts {
		b = append(strconv.AppendQuote(append(b, '\n'), a.Name), ' ')
		b = strconv.AppendInt(b, a.Milli, 10)
	}
	h := sha256.Sum256(b[at:])
	var group [len(shapePrefix) + 16]byte
	need.Group = string(hex.AppendEncode(append(group[:0], shapePrefix...), h[:8]))
	p.id, s.bytes = rowID(b), b
	return p
}

// newOverflowProfile is the profile of the overflow row of a family.
func newOverflowProfile(of *profile) *profile {
	n := of.need
	return &profile{family: of.family, id: overflowID(of), need: &pb.CapacityNeed{
		Requirements: n.Requirements, Priority: n.Priority, Tolerations: n.Tolerations, TolerationsStated: n.TolerationsStated,
		InterruptionPenaltyBucket: n.InterruptionPenaltyBucket, ReclamationPenaltyBucket: n.ReclamationPenaltyBucket, Group: overflowGroup + of.peers,
		MaxPerHost: n.MaxPerHost, NeverPreempts: n.NeverPreempts, Spread: n.Spread, Preferences: n.Preferences,
	}}
}

// overflowID is the id of the overflow row.
func overflowID(of *profile) string {
	return rowID(append(of.family[:len(of.family):len(of.family)], overflowGroup...))
}

func canonicalBytes(b []byte, need *pb.CapacityNeed) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, need)
	if err != nil {
		panic(err) // only texts that are not UTF-8 fail, and JSON decoding has replaced those
	}
	return b
}

func rowID(identity []byte) string {
	const prefix = "r1-"
	h := sha256.Sum256(identity)
	var id [len(prefix) + 32]byte
	return string(hex.AppendEncode(append(id[:0], prefix...), h[:16]))
}

// size orders shapes by how hard they are to place: first what asks for devices, then by the larger of cpu and memory, where
// 4 GiB are as much as one cpu.
type size struct{ devices, larger, cpu, memory int64 }

func sizeOf(amounts []request.Amount) (s size) {
	for _, a := range amounts {
		switch {
		case a.Name == "cpu":
			s.cpu = a.Milli
		case a.Name == "memory":
			s.memory = a.Milli
		case !quantity.Bytes(a.Name):
			s.devices = max(s.devices, a.Milli)
		}
	}
	s.larger = max(s.cpu, s.memory>>32)
	return s
}

// compareProfiles puts the larger shape first; it is total.
func compareProfiles(x, y *profile) int {
	return cmp.Or(cmp.Compare(y.size.devices, x.size.devices), cmp.Compare(y.size.larger, x.size.larger), cmp.Compare(y.size.cpu, x.size.cpu),
		cmp.Compare(y.size.memory, x.size.memory), strings.Compare(x.id, y.id))
}
