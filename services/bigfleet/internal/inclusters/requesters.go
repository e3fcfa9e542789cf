package inclusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bigfleet-dev/bigfleet/services/console/clusters"
)

const (
	sumFresh = 30 * time.Second // sums younger than this are not read again
	// teamLabel is the label of a namespace that names its team.
	teamLabel = "team"
)

// summed is who requested each row of a cluster when it was last read.
type summed struct {
	rows  Rows
	teams map[string]string
	whole bool
	at    time.Time
}

// Requesters names the namespaces that request a row. However many viewers ask, a cluster's requests are read once in sumFresh.
func (r *Reader) Requesters(ctx context.Context, id, row string) (out []clusters.Requester, whole bool, err error) {
	c, err := r.cluster(id)
	if err != nil {
		return nil, false, err
	}
	got, err := c.sum(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, of := range got.rows.Requesters(row) {
		out = append(out, clusters.Requester{Namespace: of.Namespace, Team: got.teams[of.Namespace], Requests: of.Requests})
	}
	return out, got.whole, nil
}

func (c *cluster) sum(ctx context.Context) (summed, error) {
	c.summing.Lock()
	defer c.summing.Unlock()
	if time.Since(c.requests.at) < sumFresh {
		return c.requests, nil
	}
	rows, whole, err := RowsOf(ctx, c.dynamic, nil)
	switch {
	case apierrors.IsNotFound(err):
		return summed{}, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cluster %s does not have the CapacityRequest CRD: `bigfleet crds apply` installs it", c.id))
	case err != nil:
		return summed{}, c.refused("the CapacityRequests", err)
	}
	teams, err := Teams(ctx, c.core, teamLabel)
	if err != nil && !apierrors.IsForbidden(err) && !errors.Is(err, context.Canceled) {
		return summed{}, c.refused("the namespaces", err)
	}
	c.requests = summed{rows: rows, teams: teams, whole: whole, at: time.Now()}
	return c.requests, nil
}
