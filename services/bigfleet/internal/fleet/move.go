package fleet

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// Move reads one move of machines between shards from the coordinator.
func (f *Fleet) Move(ctx context.Context, id string) (move *bigfleetv1alpha1.Move, err error) {
	about := "move/" + id
	err = f.Leader(ctx, "reading "+about, func(ctx context.Context, c Coordinator) error {
		got, err := c.Admin.ListMoves(ctx, connect.NewRequest(&bigfleetv1alpha1.ListMovesRequest{}))
		if err != nil {
			return err
		}
		moves := got.Msg.GetMoves()
		if i := slices.IndexFunc(moves, func(m *bigfleetv1alpha1.Move) bool { return m.GetMoveId() == id }); i >= 0 {
			move = moves[i]
		}
		return nil
	})
	if err == nil && move == nil {
		err = &exit.Error{Code: exit.NotFound, Message: "the coordinator knows no " + about, Hint: "`bigfleet get moves` lists them"}
	}
	return move, err
}
