package sim

import (
	"context"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"github.com/spf13/cobra"
)

// controlAddrDefault is where SubstrateControl listens when nothing is said (PROV-26.11).
const controlAddrDefault = "127.0.0.1:9001"

// settings is the sim's own part of the configuration file.
type settings struct {
	World   `yaml:",inline"`
	Control string `yaml:"sim_control_addr" doc:"Listen address of SubstrateControl when control_addr is empty; off turns it off."`
}

// Validate is called by sdk/provider.
func (s *settings) Validate() error {
	_, err := s.withPreset()
	return err
}

// NewCommand is the program bigfleet-provider-sim.
func NewCommand() *cobra.Command { return program().Command() }

// Main runs the program and exits.
func Main() { provider.Main(program()) }

func program() provider.Program[settings] {
	return provider.Program[settings]{
		Name: "sim", Short: "Simulated cloud with changing prices, interruptions and stock-outs; it has no real machines",
		Config:    settings{World: World{Preset: "calm", Seed: 1, TimeScale: 1}, Control: controlAddrDefault},
		Build:     build,
		Fake:      build, // the substrate of the sim is a pretended one in any case
		Catalogue: Catalogue,
		Default:   func() []provider.Offering { return Catalogue(0) },
		Flags: func(cmd *cobra.Command, s *settings) {
			f := cmd.Flags()
			f.StringVar(&s.Preset, "preset", s.Preset, "preset for all settings that are not given: calm, lively or storm")
			f.Int64Var(&s.Seed, "seed", s.Seed, "seed of all random draws; any number, also 0 and negative ones")
			f.Float64Var(&s.TimeScale, "time-scale", s.TimeScale, "simulated seconds per real second, 1 to 10000; 0 means 1")
			f.BoolVar(&s.NoDelete, "no-delete", s.NoDelete, "machines cannot be returned to the provider, as with owned hardware")
			f.StringVar(&s.Control, "sim-control-addr", s.Control, "listen address of SubstrateControl when --control-addr is not given; 0 or off turns it off")
		},
	}
}

func build(_ context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
	addr := s.Common.ControlAddr
	if addr == "" && s.Config.Control != "off" {
		addr = s.Config.Control
	}
	b, err := newBackend(Config{
		Name: s.Common.Provider, Offerings: s.Offerings, World: s.Config.World, ControlAddr: addr, TLS: s.Common.Files(), Log: s.Log,
		Registerer: s.Registerer,
	})
	if err != nil {
		return nil, nil, err
	}
	return b.backend(), b.options(), nil
}
