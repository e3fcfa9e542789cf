package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// Orders is what a line of a script may say, for help and errors.
const Orders = `deploy CLUSTER NAME PODS [cpu=1] [priority=0] [type=m.8x] [gpu=0] [gang]
                              a Deployment; with gang, all its Pods on machines of one rack
scale CLUSTER NAME PODS       another number of Pods
wait CLUSTER NAME PODS        until this many of its Pods run
rest                          until nothing moves
stock spot|on-demand N|back   machines that each pool can still sell; back restores the stock
storm DURATION                interrupts the spot machines of the busiest zone, with this notice
stop|start shard|coordinator
stop|start operator CLUSTER
reset                         delete all workloads, restore the stock, start everything
say TEXT                      print it`

// waitMax bounds how long a line waits for Pods. What takes longer on a machine at work is reported as such.
const waitMax = 3 * time.Minute

// LoadScript reads a story from a file (OPS-5.7). A line is an order of Orders; +DURATION before it is a pause, and # begins a comment.
func LoadScript(path string) (Scenario, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Scenario{}, err
	}
	s, err := ParseScript(string(raw))
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	s.Name = path
	return s, nil
}

// ParseScript reads a story from text. Everything that is wrong is said at once.
func ParseScript(text string) (Scenario, error) {
	s := Scenario{Cloud: true}
	var errs []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		step, err := parseLine(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
		}
		s.Steps = append(s.Steps, step)
	}
	return s, errors.Join(errs...)
}

func parseLine(line string) (Step, error) {
	var step Step
	if pause, rest, ok := strings.Cut(line, " "); ok && strings.HasPrefix(pause, "+") {
		d, err := time.ParseDuration(pause[1:])
		if err != nil || d < 0 {
			return step, fmt.Errorf("%q is not a delay: write +2s", pause)
		}
		step.After, line = d, strings.TrimSpace(rest)
	}
	step.Message = line
	words := strings.Fields(line)
	parse, known := verbs()[words[0]]
	if !known {
		return step, fmt.Errorf("there is no step %q: use one of %s", words[0], strings.Join(slices.Sorted(keys(verbs())), ", "))
	}
	var err error
	if words[0] == "say" {
		step.Message = strings.TrimSpace(strings.TrimPrefix(line, "say"))
	}
	step.Do, err = parse(words[1:])
	if err != nil {
		return step, fmt.Errorf("%q: %w", line, err)
	}
	return step, nil
}

type doing = func(context.Context, *World) error

// verbs makes what each order does from its words.
func verbs() map[string]func([]string) (doing, error) {
	return map[string]func([]string) (doing, error){
		"deploy": deploy, "scale": rescale, "wait": await, "stock": restock,
		"storm": func(words []string) (doing, error) {
			if len(words) != 1 {
				return nil, errors.New("usage: storm DURATION")
			}
			notice, err := time.ParseDuration(words[0])
			return storm(notice), err
		},
		"rest": none(func(ctx context.Context, w *World) error {
			ctx, cancel := context.WithTimeout(ctx, waitMax)
			defer cancel()
			return w.settle(ctx)
		}),
		"reset": none(func(ctx context.Context, w *World) error { return w.reset(ctx) }),
		"say":   func([]string) (doing, error) { return func(context.Context, *World) error { return nil }, nil },
		"stop": func(words []string) (doing, error) {
			return onRole(words, func(ctx context.Context, r *role) error { return r.Stop(ctx) })
		},
		"start": func(words []string) (doing, error) {
			return onRole(words, func(_ context.Context, r *role) error { return r.Start() })
		},
	}
}

func none(do doing) func([]string) (doing, error) {
	return func(words []string) (doing, error) {
		if len(words) > 0 {
			return nil, errors.New("takes no arguments")
		}
		return do, nil
	}
}

// pods reads CLUSTER NAME PODS.
func pods(words []string) (cluster, name string, n int32, err error) {
	if len(words) < 3 {
		return "", "", 0, errors.New("usage: CLUSTER NAME PODS")
	}
	count, err := strconv.ParseInt(words[2], 10, 32)
	if err != nil || count < 0 || count > 5000 {
		return "", "", 0, fmt.Errorf("%q is not a number of Pods: use 0 to 5000", words[2])
	}
	return words[0], words[1], int32(count), nil
}

func deploy(words []string) (doing, error) {
	cluster, name, n, err := pods(words)
	if err != nil {
		return nil, err
	}
	cpu := "1"
	var shapes []func(*corev1.PodSpec)
	for _, option := range words[3:] {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "cpu":
			if _, err := resource.ParseQuantity(value); err != nil {
				return nil, fmt.Errorf("cpu=%s: %w", value, err)
			}
			cpu = value
		case "priority":
			p, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("priority=%s: not a number", value)
			}
			shapes = append(shapes, func(s *corev1.PodSpec) { v := int32(p); s.Priority = &v })
		case "type":
			shapes = append(shapes, func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: value} })
		case "gpu":
			q, err := resource.ParseQuantity(value)
			if err != nil {
				return nil, fmt.Errorf("gpu=%s: %w", value, err)
			}
			shapes = append(shapes, func(s *corev1.PodSpec) {
				s.Containers[0].Resources.Requests["nvidia.com/gpu"] = q
				s.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": q}
			})
		case "gang":
			shapes = append(shapes, func(s *corev1.PodSpec) {
				s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, TopologyKey: rackKey}}}}
			})
		default:
			return nil, fmt.Errorf("there is no option %q: use cpu=, priority=, type=, gpu= or gang", option)
		}
	}
	return inCluster(cluster, func(ctx context.Context, c *Cluster) error {
		err := c.apply(ctx, deployment(name, n, cpu, func(s *corev1.PodSpec) {
			for _, shape := range shapes {
				shape(s)
			}
		}))
		if apierrors.IsAlreadyExists(err) {
			return scale(name, n)(ctx, c)
		}
		return err
	}), nil
}

func rescale(words []string) (doing, error) {
	cluster, name, n, err := pods(words)
	return inCluster(cluster, scale(name, n)), err
}

func await(words []string) (doing, error) {
	cluster, name, n, err := pods(words)
	return inCluster(cluster, func(ctx context.Context, c *Cluster) error {
		ctx, cancel := context.WithTimeout(ctx, waitMax)
		defer cancel()
		run := 0
		for ctx.Err() == nil {
			list, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name, FieldSelector: fields.OneTermEqualSelector("status.phase", "Running").String()})
			if err == nil {
				if run = len(list.Items); run == int(n) {
					return nil
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("after %v %d of %d Pods of %s run in %s: `bigfleet explain cluster/%s` says why", waitMax, run, n, name, c.ID(), c.ID())
		}
		return nil
	}), err
}

func restock(words []string) (doing, error) {
	if len(words) != 2 {
		return nil, errors.New("usage: stock spot|on-demand N|back")
	}
	class, known := map[string]provider.CapacityType{"spot": provider.Spot, "on-demand": provider.OnDemand}[words[0]]
	if !known {
		return nil, fmt.Errorf("%q is not a capacity type here: use spot or on-demand", words[0])
	}
	if words[1] == "back" {
		return stock(class, -1), nil
	}
	n, err := strconv.Atoi(words[1])
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is not a stock level: use a number, or back", words[1])
	}
	return stock(class, n), nil
}

func onRole(words []string, do func(context.Context, *role) error) (doing, error) {
	if len(words) == 0 || len(words) > 2 || (words[0] == "operator") != (len(words) == 2) {
		return nil, errors.New("usage: shard, coordinator, or operator CLUSTER")
	}
	switch words[0] {
	case "shard":
		return func(ctx context.Context, w *World) error { return do(ctx, &w.shards[0].role) }, nil
	case "coordinator":
		return func(ctx context.Context, w *World) error {
			if w.coordinator == nil {
				return errors.New("there is no coordinator: --no-coordinator was given")
			}
			return do(ctx, w.coordinator)
		}, nil
	case "operator":
		return inCluster(words[1], func(ctx context.Context, c *Cluster) error { return do(ctx, c.operator) }), nil
	}
	return nil, fmt.Errorf("%q cannot be stopped: shard, coordinator, or operator CLUSTER", words[0])
}

// inCluster finds the cluster when the order is carried out: a script may be read before there is a world.
func inCluster(id string, do act) doing {
	return func(ctx context.Context, w *World) error {
		i := slices.IndexFunc(w.Clusters, func(c *Cluster) bool { return c.ID() == id })
		if i < 0 {
			var ids []string
			for _, c := range w.Clusters {
				ids = append(ids, c.ID())
			}
			return fmt.Errorf("there is no cluster %q: use one of %s", id, strings.Join(ids, ", "))
		}
		return do(ctx, w.Clusters[i])
	}
}

// reset takes every workload away and puts cloud and roles back.
func (w *World) reset(ctx context.Context) error {
	for _, c := range w.Clusters {
		if c.operator.Away() {
			_ = c.operator.Start() // it may be on its way already
		}
		list, err := c.Client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, d := range list.Items {
			if err := c.Client.AppsV1().Deployments(namespace).Delete(ctx, d.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	for _, s := range w.shards {
		if s.Away() {
			_ = s.Start()
		}
	}
	if w.coordinator != nil && w.coordinator.Away() {
		_ = w.coordinator.Start()
	}
	if w.Cloud == nil {
		return nil
	}
	return errors.Join(stock(provider.Spot, -1)(ctx, w), stock(provider.OnDemand, -1)(ctx, w))
}
