package podcontroller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/apiaccess"
	"github.com/bigfleet-dev/bigfleet/services/incluster/election"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/cached"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/devices"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/gangs"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/keeper"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/penalty"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/volumes"
)

type controller struct {
	Config
	log       *slog.Logger
	access    *apiaccess.Access
	events    *events.Writer
	penalties *penalty.Defaults
	keeper    *keeper.Keeper
	volumes   *volumes.Store
	gangs     *gangs.Watcher
	devices   *devices.Watcher
	leader    func(holds bool)
	synced    []func() bool
}

// Run is one pod controller. It returns nil when ctx ended, and an error when it cannot work or lost its Lease.
func Run(ctx context.Context, c Config) error {
	if c.REST == nil || c.Telemetry == nil {
		return errors.New("podcontroller.Config: REST and Telemetry are required")
	}
	if err := c.check(); err != nil {
		return config.Fail(err)
	}
	p := &controller{Config: c, log: c.Telemetry.Log}
	closeMetrics, err := p.build(ctx)
	if err != nil {
		return err
	}
	defer closeMetrics()
	defer p.keeper.Close()
	complete := make(chan struct{})
	c.Telemetry.Health.AddReady("caches", func() error {
		select {
		case <-complete:
			return nil
		default:
			return errors.New("the caches are not complete yet")
		}
	})
	group := process.New(process.Config{Log: p.log, OnStop: c.Telemetry.Health.Stopping, StopTimeout: 10 * time.Second})
	for i, port := range c.Ops {
		group.Add(process.Component{Name: fmt.Sprintf("ops-%d", i), Kind: process.Restarts, Run: port.Run})
	}
	group.Add(process.Component{Name: "cache", Run: p.access.Cache.Start})
	group.Add(process.Component{Name: "gangs", Run: p.gangs.Run})
	group.Add(process.Component{Name: "devices", Run: p.devices.Run})
	group.Add(process.Component{Name: "controller", Run: func(ctx context.Context) error {
		p.log.Info("reading the cluster; nothing is written before all of it is known", "apiserver", p.REST.Host, "limit", p.CacheSyncTimeout)
		if err := apiaccess.Sync(ctx, p.CacheSyncTimeout, p.synced...); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		close(complete)
		return p.lead(ctx)
	}})
	return group.Run(ctx)
}

func (p *controller) build(ctx context.Context) (closeMetrics func(), err error) {
	if p.penalties, err = penalty.Load(p.PriorityClassDefaults); err != nil {
		return nil, config.Fail(err)
	}
	if p.access, err = p.connect(); err != nil {
		return nil, err
	}
	m := telemetry.NewMetrics(p.Telemetry.Registry, "bigfleet_")
	reconciles := m.CounterVec("unschedulable_pod_controller_reconciles_total", "Reconciliations of Pods by outcome.", "outcome")
	for _, o := range keeper.Outcomes() {
		reconciles.WithLabelValues(o)
	}
	unsupported := m.CounterVec("podcontroller_unsupported_constraints_total", "Constraints of Pods that have no effect on capacity, by kind.", "kind")
	repairs := m.Counter("podcontroller_resync_repairs_total", "Changes that only the periodic full check found: a bug, or a missed edit by another client.")
	dropped := m.Counter("podcontroller_events_dropped_total", "Kubernetes events that were not written.")
	leader := m.Gauge("podcontroller_leader", "1 while this process holds the Lease.")
	p.leader = func(holds bool) {
		leader.Set(map[bool]float64{true: 1}[holds])
		p.log.Info("leader election", "holds", holds)
	}
	if err := m.Err(); err != nil {
		return nil, err
	}
	if p.events, err = events.New(events.Config{Client: p.access.Client, Component: Reporter, Log: p.log, Dropped: dropped.Inc}); err != nil {
		return nil, err
	}
	excluded := map[string]bool{}
	for _, n := range p.ExcludeNamespaces {
		excluded[n] = true
	}
	p.volumes = volumes.New(func(pods []types.UID) { p.keeper.Enqueue(pods) })
	if p.gangs, err = gangs.NewWatcher(p.access.REST, p.log, func(pods []types.UID) { p.keeper.Enqueue(pods) }); err != nil {
		return nil, err
	}
	if p.devices, err = devices.NewWatcher(p.access.REST, p.log, func(pods []types.UID) { p.keeper.Enqueue(pods) }); err != nil {
		return nil, err
	}
	p.keeper, err = keeper.New(keeper.Config{
		Client: p.access.Client, Defaults: translate.Defaults{Floor: p.floor, Class: p.penalties.Class, Volumes: p.volumes.Of, Attaches: p.volumes.Attaches, Gang: p.gangs.Of,
			Devices: p.devices.Of},
		Gathering: p.gangs.Waits, ExcludeNamespaces: excluded,
		Unmanaged: p.unmanaged, CountForeign: p.CountForeignNodes, Workers: p.Workers, Record: p.events.Record, Reconciles: reconciles, Unsupported: unsupported, Repairs: repairs, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	p.Telemetry.Health.AddLive("keeper", p.keeper.Alive)
	return m.Close, p.watch(ctx)
}

func (p *controller) connect() (*apiaccess.Access, error) {
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), storagev1.AddToScheme(s), keeper.Register(s)); err != nil {
		return nil, err
	}
	owned, err := labels.NewRequirement(v1alpha1.LabelOwnedByPod, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	core := corev1.SchemeGroupVersion
	return apiaccess.Connect(apiaccess.Config{
		REST: p.REST, Program: "bigfleet-podcontroller/" + telemetry.ReadBuild().Version, Scheme: s, QPS: p.QPS, Burst: p.Burst,
		Kinds: []apiaccess.Kind{
			{GVK: v1alpha1.GroupVersion().WithKind("CapacityRequest"), Resource: "capacityrequests"},
			{GVK: v1alpha1.GroupVersion().WithKind("UpcomingNode"), Resource: "upcomingnodes", Cluster: true},
			{GVK: core.WithKind("Pod"), Resource: "pods"},
			{GVK: core.WithKind("Node"), Resource: "nodes", Cluster: true},
			{GVK: core.WithKind("PersistentVolumeClaim"), Resource: "persistentvolumeclaims"},
			{GVK: core.WithKind("PersistentVolume"), Resource: "persistentvolumes", Cluster: true},
			{GVK: storagev1.SchemeGroupVersion.WithKind("StorageClass"), Resource: "storageclasses", Cluster: true},
			{GVK: core.WithKind("Event"), Resource: "events"},
		},
		Objects: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   {Transform: cached.Strip},
			&corev1.Node{}:                  {Transform: translate.StripNode},
			&v1alpha1.UpcomingNode{}:        {Transform: keeper.StripUpcoming},
			&corev1.PersistentVolumeClaim{}: {Transform: volumes.Strip},
			&corev1.PersistentVolume{}:      {Transform: volumes.Strip},
			&storagev1.StorageClass{}:       {Transform: volumes.Strip},
			&keeper.Object{}:                {Transform: keeper.Strip, Label: labels.NewSelector().Add(*owned)},
		},
		OnWatchError: func(kind string, err error) {
			p.log.Warn("a watch of the API server is broken; the last known state stays in force", "kind", kind, "err", err)
		},
	})
}

func (p *controller) watch(ctx context.Context) error {
	return errors.Join(
		follow(ctx, p, &corev1.Node{}, p.keeper.SetNode, p.keeper.DeleteNode),
		follow(ctx, p, &v1alpha1.UpcomingNode{}, p.keeper.SetUpcoming, p.keeper.DeleteUpcoming),
		follow(ctx, p, &keeper.Object{}, p.keeper.SetObject, p.keeper.DeleteObject),
		follow(ctx, p, &corev1.PersistentVolumeClaim{}, p.volumes.SetClaim, p.volumes.DeleteClaim),
		follow(ctx, p, &corev1.PersistentVolume{}, p.volumes.SetVolume, p.volumes.DeleteVolume),
		follow(ctx, p, &storagev1.StorageClass{}, p.volumes.SetClass, p.volumes.DeleteClass),
		follow(ctx, p, &corev1.Pod{}, func(pod *cached.Pod) {
			whole := pod.Whole()
			p.volumes.SetPod(whole)
			p.gangs.SetPod(whole)
			p.devices.SetPod(whole)
			p.keeper.SetPod(pod)
		}, func(pod *cached.Pod) {
			whole := pod.Whole()
			p.volumes.DeletePod(whole)
			p.gangs.DeletePod(whole)
			p.devices.DeletePod(whole)
			p.keeper.DeletePod(pod)
		}),
	)
}

func follow[T client.Object](ctx context.Context, p *controller, kind client.Object, set, gone func(T)) error {
	synced, err := apiaccess.Follow(ctx, p.access.Cache, kind, set, gone)
	p.synced = append(p.synced, synced)
	return err
}

// lead works while this process holds the Lease (OP-15.22).
func (p *controller) lead(ctx context.Context) error {
	if p.NoLeaderElection {
		p.leader(true)
		return p.work(ctx)
	}
	leases, err := election.Client(p.access.REST, p.Namespace)
	if err != nil {
		return err
	}
	return election.Run(ctx, election.Config{Leases: leases, Namespace: p.Namespace, Name: leaseName, Log: p.log, OnLeader: p.leader}, p.work)
}

func (p *controller) work(ctx context.Context) error {
	group := process.New(process.Config{Log: p.log, StopTimeout: 8 * time.Second})
	group.Add(process.Component{Name: "events", Run: p.events.Run})
	group.Add(process.Component{Name: "penalties", Run: func(ctx context.Context) error {
		return p.penalties.Watch(ctx, p.log, p.keeper.EnqueueAll)
	}})
	group.Add(process.Component{Name: "keeper", Run: p.keeper.Run})
	return group.Run(ctx)
}
