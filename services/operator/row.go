package operator

import (
	"encoding/json"
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// RowsOf returns the row ids under which a CapacityRequest, given as JSON, may be counted; need statuses of the shard carry
// the same ids (OP-14.1). The first listed id that the shard knows is the right one: where requests have many sizes, the
// smallest share the last id (OP-5.22). A request that cannot be counted has no row, and problem explains why. A problem
// beside rows is a warning.
func RowsOf(raw []byte) (rowIDs []string, problem string, err error) {
	var r request.Request
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, "", fmt.Errorf("the request cannot be read: %w", err)
	}
	if _, err := new(request.SpecInterner).Strip(&r); err != nil {
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
