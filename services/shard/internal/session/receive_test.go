package session

import (
	"fmt"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// WIRE-6.26: of the rows of a report that say which domains are full, the lists of the first hundred are taken, whatever the sender sends. Every row
// keeps its count of Pods.
func TestFullDomainsOfAHundredRowsAreTaken(t *testing.T) {
	m := &pb.UnplacedPods{}
	for i := range 50_000 {
		r := &pb.UnplacedRow{RowId: fmt.Sprintf("r%05d", i), Pods: 1}
		if i > 0 {
			r.FullDomains = []string{"a", "b"}
		}
		m.Rows = append(m.Rows, r)
	}
	rows := unplaced(&live{cluster: "red"}, m).Rows
	for i, r := range rows {
		if has := len(r.Full) == 2; has != (i > 0 && i <= 100) || r.Pods != 1 {
			t.Fatalf("row %d: %+v", i, r)
		}
	}
	if len(rows) != len(m.Rows) {
		t.Errorf("%d rows of %d", len(rows), len(m.Rows))
	}
}
