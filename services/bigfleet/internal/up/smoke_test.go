package up

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/simcluster"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

func TestSmoke(t *testing.T) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	sc, err := simcluster.New(simcluster.Config{ID: "red", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(sc.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Cluster: sc, Client: client}
	g := process.New(process.Config{Log: log})
	c.add(g, "127.0.0.1:1", func(component string) *telemetry.Telemetry {
		tel, err := telemetry.New(t.Context(), telemetry.Config{Component: component, Log: log.With("component", component)})
		if err != nil {
			t.Fatal(err)
		}
		return tel
	})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	go func() {
		time.Sleep(time.Second)
		if err := service("web", 5, "1", 0)(ctx, c); err != nil {
			t.Error(err)
		}
	}()
	if err := g.Run(ctx); err != nil {
		t.Error(err)
	}
	crs, _, _ := sc.Store().List(kubesim.CapacityRequests, kubesim.Filter{})
	t.Log(len(crs))
	if len(crs) != 5 {
		t.Errorf("%d requests", len(crs))
	}
}
