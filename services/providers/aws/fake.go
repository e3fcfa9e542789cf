package aws

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
)

// How fast the model and the provider before it are: as fast as tests need it.
const (
	fakeLag  = 20 * time.Millisecond
	fakePoll = 5 * time.Millisecond
)

// buildFake is the real backend over the model of AWS, which lives in a file of the data directory. In front stands the simulated cloud
// of the SDK, so that every fault can be injected. No cluster is asked.
func buildFake(_ context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
	if err := os.MkdirAll(s.Common.DataDir, 0o700); err != nil {
		return nil, nil, err
	}
	aws, err := newModel(filepath.Join(s.Common.DataDir, "model-of-aws.json"), fakeLag)
	if err != nil {
		return nil, nil, err
	}
	if s.Config.LaunchTemplate == (launchTemplate{}) {
		s.Config.LaunchTemplate.Name = "model"
	}
	s.Config.Region = aws.cloud().region
	b, err := newBackend(Config{
		Name: s.Common.Provider, Offerings: s.Offerings, Log: s.Log, Registerer: s.Registerer, settings: s.Config, cloud: aws.cloud(), poll: fakePoll,
	})
	if err != nil {
		return nil, nil, err
	}
	front, err := substrate.New(substrate.Config{Name: s.Common.Provider, Offerings: s.Offerings})
	if err != nil {
		return nil, nil, err
	}
	served, err := front.Serve(s.Common.ControlAddr, s.Common.Files())
	if err != nil {
		return nil, nil, err
	}
	f, err := substrate.NewFront(served, b)
	if err != nil {
		return nil, nil, errors.Join(err, served.Close())
	}
	o := []provider.Option{provider.WithReadiness(provider.SubstrateReadiness()), provider.WithBlobBytes(bootBytesMax)}
	return f, o, nil
}
