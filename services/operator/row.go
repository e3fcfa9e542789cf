package operator

import (
	"encoding/json"
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// RowsOf says which row of the roll-up a CapacityRequest, as JSON, is counted in: the row_id that the shard's verdicts carry
// (OP-14.1). It is the first of those listed that the shard has: where requests are of many sizes, the smallest share the
// last one listed (OP-5.22). A request that cannot be counted has no row; problem then says why, and it may say something
// about one that can.
func RowsOf(raw []byte) (rowIDs []string, problem string, err error) {
	var r request.Request
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, "", fmt.Errorf("the request cannot be read: %w", err)
	}
	if _, err := new(request.Shelf).Strip(&r); err != nil {
		return nil, "", err
	}
	a := aggregate.New(1)
	a.Set(&r)
	key := aggregate.KeyOf(&r)
	if p := a.Problem(key); p != nil {
		problem = p.Message
	}
	return a.Candidates(key), problem, nil
}
