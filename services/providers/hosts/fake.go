package hosts

import (
	"context"
	"errors"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

func buildFake(context.Context, provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
	return nil, nil, errors.New("not yet")
}
