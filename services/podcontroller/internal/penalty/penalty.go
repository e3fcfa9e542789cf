// Package penalty reads the penalties that PriorityClasses have by default, from a YAML file.
//
//	batch-high: {interruptionPenalty: "64", reclamationPenalty: 500m}
//
// A file that cannot be read or parsed is an error at the start. After that the file is read again when it changes, and
// the last good one stays in force (OP-15.17). Start at Load; Watch follows changes.
package penalty

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

const checkEvery = 10 * time.Second

type table map[string]translate.Penalties

// Defaults are the penalties in force. The zero value has none.
type Defaults struct {
	path    string
	content []byte
	table   atomic.Pointer[table]
}

// Load reads the file. An empty path means no defaults.
func Load(path string) (*Defaults, error) {
	d := &Defaults{path: path}
	if path == "" {
		return d, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--priority-class-defaults: %w", err)
	}
	if err := d.use(b); err != nil {
		return nil, fmt.Errorf("--priority-class-defaults %s: %w", path, err)
	}
	return d, nil
}

func (d *Defaults) use(b []byte) error {
	var in map[string]struct {
		Interruption *resource.Quantity `json:"interruptionPenalty"`
		Reclamation  *resource.Quantity `json:"reclamationPenalty"`
	}
	if err := yaml.UnmarshalStrict(b, &in); err != nil {
		return err
	}
	t := table{}
	for class, p := range in {
		for _, q := range []*resource.Quantity{p.Interruption, p.Reclamation} {
			if q != nil && q.Sign() < 0 {
				return fmt.Errorf("%s: a penalty is negative", class)
			}
		}
		t[class] = translate.Penalties{Interruption: p.Interruption, Reclamation: p.Reclamation}
	}
	d.content = b
	d.table.Store(&t)
	return nil
}

// Class gives the penalties of a PriorityClass.
func (d *Defaults) Class(name string) translate.Penalties {
	if t := d.table.Load(); t != nil {
		return (*t)[name]
	}
	return translate.Penalties{}
}

// Watch reads the file again when it changes, until ctx ends, and says so.
func (d *Defaults) Watch(ctx context.Context, log *slog.Logger, changed func()) error {
	if d.path == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var bad []byte
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		b, err := os.ReadFile(d.path)
		if err == nil && (bytes.Equal(b, d.content) || bytes.Equal(b, bad)) {
			continue
		}
		if err == nil {
			err = d.use(b)
		}
		if err != nil {
			log.Error("the PriorityClass defaults cannot be used; the last valid ones stay in force", "file", d.path, "err", err)
			bad = b
			continue
		}
		bad = nil
		log.Info("the PriorityClass defaults changed", "file", d.path)
		changed()
	}
}
