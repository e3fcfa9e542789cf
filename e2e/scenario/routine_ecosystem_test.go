package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// event waits for an event of a Pod and returns its text.
func (s *story) event(pod, reason string) (text string) {
	s.Helper()
	for ctx := bounded(s.T); ; time.Sleep(100 * time.Millisecond) {
		events, err := s.Client().CoreV1().Events("default").List(s.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod + ",reason=" + reason})
		s.must(err)
		if len(events.Items) > 0 {
			return events.Items[0].Message
		}
		if ctx.Err() != nil {
			s.Fatalf("no event %s of Pod %s\n%s", reason, pod, s.account())
		}
	}
}

// bought is how many Nodes there ever were.
func (s *story) bought() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.nodes)
}

func (s *story) deletePods(names ...string) {
	s.Helper()
	for _, name := range names {
		s.must(s.Client().CoreV1().Pods("default").Delete(s.Context(), name, metav1.DeleteOptions{}))
	}
}

// OP-15.30, ENG-4.13: the Pods of a LeaderWorkerSet, a leader and its workers for each group, as its controller makes them. There are four
// machines and a Pod takes one: the first group runs, and nothing is bought for the second, of which one Pod would run and two wait. It runs
// once the first is gone.
func leaderWorkers(t *testing.T, s *story) {
	group := func(n int) (names []string) {
		leader := fmt.Sprint("lws-", n)
		for i := range 3 {
			tpl, name := s.template("lws", "3"), leader
			tpl.Labels["leaderworkerset.sigs.k8s.io/name"] = "lws"
			tpl.Labels["leaderworkerset.sigs.k8s.io/group-index"] = fmt.Sprint(n)
			tpl.Labels["leaderworkerset.sigs.k8s.io/worker-index"] = fmt.Sprint(i)
			tpl.Annotations = map[string]string{"leaderworkerset.sigs.k8s.io/size": "3"}
			if i > 0 {
				name = fmt.Sprint(leader, "-", i)
				tpl.Annotations["leaderworkerset.sigs.k8s.io/leader-name"] = leader
			}
			s.create(name, tpl)
			names = append(names, name)
		}
		return names
	}
	first := group(0)
	s.run(first...)
	second := group(1)
	if text := s.event(second[0], "NoCapacity"); text == "" {
		t.Error("the event says nothing")
	}
	if n := s.bought(); n != 3 {
		t.Errorf("%d machines were bought for a group of three, and none can be of use to the other\n%s", n, s.account())
	}
	s.deletePods(first...)
	s.run(second...)
}

// OP-15.30, ENG-4.13: Pod groups that Kueue admits: while it holds them back by its gate, nothing is bought. Then a group of five, for which four
// machines are too few, gets none, and one of three gets three.
func kueueGroups(t *testing.T, s *story) {
	group := func(name string, size int) (names []string) {
		for i := range size {
			tpl := s.template(name, "3")
			tpl.Labels["kueue.x-k8s.io/managed"], tpl.Labels["kueue.x-k8s.io/pod-group-name"] = "true", name
			tpl.Annotations = map[string]string{"kueue.x-k8s.io/pod-group-total-count": fmt.Sprint(size)}
			tpl.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			names = append(names, fmt.Sprint(name, "-", i))
			s.create(names[i], tpl)
		}
		return names
	}
	admit := func(names []string) {
		for _, name := range names {
			_, err := s.Client().CoreV1().Pods("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{})
			s.must(err)
		}
	}
	var large []string
	for try, inTime := 0, false; !inTime; try++ { // members wait for each other for ten seconds: on a slow machine the admission of five may take longer
		if len(large) > 0 {
			s.deletePods(large...)
		}
		if try == 5 {
			t.Fatal("five Pods were never admitted within eight seconds")
		}
		created := time.Now()
		large = group(fmt.Sprint("large-", try), 5)
		time.Sleep(2 * time.Second) // more than a purchase takes
		if n := s.bought(); try == 0 && n != 0 {
			t.Errorf("%d machines were bought for Pods that Kueue holds back\n%s", n, s.account())
		}
		admit(large)
		inTime = time.Since(created) < 8*time.Second
	}
	before := s.bought()
	s.event(large[0], "NoCapacity")
	if n := s.bought() - before; n != 0 {
		t.Errorf("%d machines were bought for a group of five, of which one would wait\n%s", n, s.account())
	}
	s.deletePods(large...) // kube-scheduler would put some of them on the machines of the others
	fits := group("fits", 3)
	admit(fits)
	s.run(fits...)
	if n := s.bought(); before == 0 && n != 3 {
		t.Errorf("%d machines were bought for a group of three\n%s", n, s.account())
	}
}

// OP-5.26, OP-15.29, ENG-3.8: a CSI driver attaches two volumes to a Node. Pods with a volume each, which one machine has cpu for, get further
// machines; kube-scheduler puts no third one on a Node. Each Node gets a CSINode, as from a kubelet: a Pod that waits for one to attach its volume is
// tried again when a CSINode comes, not when a Node does.
func volumesAttach(t *testing.T, s *story) {
	const driver, limit = "disk.csi.example.com", 2
	s.follow("nodes", func(o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = corev1.LabelInstanceTypeStable + "=" + typeOf(s.name)
		return s.Client().CoreV1().Nodes().Watch(s.Context(), o)
	}, func(e watch.Event) {
		n, ok := e.Object.(*corev1.Node)
		if !ok || e.Type != watch.Added {
			return
		}
		_, err := s.Client().StorageV1().CSINodes().Create(s.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: n.Name, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(limit))}}}}}, metav1.CreateOptions{})
		if err != nil && s.Context().Err() == nil {
			t.Error(err)
		}
	})
	s.create("attach-first", s.template("first", "100m"))
	first := s.run("attach-first")[0]
	time.Sleep(6 * time.Second) // the operator counts Nodes two seconds after they changed
	var names []string
	for i := range limit + 1 {
		name := fmt.Sprint("attached-", i)
		s.disk(name, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}}, nil)
		tpl := s.template("attached", "100m")
		tpl.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		s.create(name, tpl)
		names = append(names, name)
	}
	on := s.run(names...)
	if here := len(slices.DeleteFunc(slices.Clone(on), func(n string) bool { return n != first })); here > limit {
		t.Errorf("%d Pods attach a volume on %s", here, first)
	}
	if n := s.bought(); n < 2 || n > 3 { // one more where a Pod was Unschedulable before the operator had counted
		t.Errorf("%d machines were bought, want 2\n%s", n, s.account())
	}
	s.deletePods(append(names, "attach-first")...)
}

// disk makes a volume and a claim that is bound to it.
func (s *story) disk(name string, source corev1.PersistentVolumeSource, where *corev1.VolumeNodeAffinity) {
	s.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes, none := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, ""
	_, err := s.Client().CoreV1().PersistentVolumes().Create(s.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: name},
			PersistentVolumeSource: source, NodeAffinity: where},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.Client().CoreV1().PersistentVolumeClaims("default").Create(s.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: &none, VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// ENG-7.4a: machines of two zones cost the same. A Pod that prefers the second zone gets its machine there, and one that prefers a zone of which
// there is none runs all the same.
func prefers(t *testing.T, s *story) {
	for name, want := range map[string]string{"second": "test-1b", "none": ""} {
		tpl := s.template(name, "3")
		zone := want
		if zone == "" {
			zone = "test-9"
		}
		tpl.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}},
		}}}}
		s.create(name, tpl)
		on := s.run(name)[0]
		n, err := s.Client().CoreV1().Nodes().Get(t.Context(), on, metav1.GetOptions{})
		s.must(err)
		if got := n.Labels[corev1.LabelTopologyZone]; want != "" && got != want {
			t.Errorf("%s runs in %s, want %s", name, got, want)
		}
	}
}

// OP-15.32: machines of the type offer two devices of a class, of one model. Three Pods that claim a device of that model each run on two machines, where
// kube-scheduler allocates them. One that claims a device of another model gets no machine, and one whose claim says more than can be counted gets an event that names the field.
func claimsDevices(t *testing.T, s *story) {
	const class = "gpu.example.com"
	api := s.Client().ResourceV1()
	_, err := api.DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + class + `"`}}}}}, metav1.CreateOptions{})
	s.must(err)
	model := func(name string) []resourcev1.DeviceSelector {
		return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["` + class + `"].model == "` + name + `"`}}}
	}
	for name, ask := range map[string]*resourcev1.ExactDeviceRequest{
		"one": {Selectors: model("big")}, "other": {Selectors: model("small")}, "all": {AllocationMode: resourcev1.DeviceAllocationModeAll},
	} {
		ask.DeviceClassName = class
		_, err := api.ResourceClaimTemplates("default").Create(t.Context(), &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
				Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: ask}}}}}}, metav1.CreateOptions{})
		s.must(err)
	}
	s.publishDevices(class, 2, "big")
	claim := func(pod, template string) {
		tpl := s.template("gpu", "100m")
		tpl.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
		tpl.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		s.create(pod, tpl)
	}
	for i := range 3 {
		claim(fmt.Sprint("gpu-", i), "one")
	}
	on := s.run("gpu-0", "gpu-1", "gpu-2")
	if used := len(slices.Compact(slices.Sorted(slices.Values(on)))); used != 2 || s.bought() != 2 {
		t.Errorf("three devices are on %d machines, %d were bought\n%s", used, s.bought(), s.account())
	}
	claim("gpu-other", "other")
	claim("gpu-all", "all")
	if text := s.event("gpu-other", "NoCapacity"); !strings.Contains(text, "NoMatchingSupply") {
		t.Errorf("NoCapacity says %q", text)
	}
	if text := s.event("gpu-all", "CapacityReduced"); !strings.Contains(text, "ResourceClaimTemplate all") || !strings.Contains(text, "allocationMode All") {
		t.Errorf("CapacityReduced says %q", text)
	}
	if s.bought() != 2 {
		t.Errorf("%d machines were bought\n%s", s.bought(), s.account())
	}
}

// publishDevices plays a driver on each Node: it publishes so many devices of a model.
func (s *story) publishDevices(driver string, count int, model string) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	s.Cleanup(func() { cancel(); <-done })
	publish := func(node string) error {
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver}, Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}}
		for i := range count {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("gpu-", i),
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}})
		}
		_, err := s.Client().ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		return err
	}
	go func() {
		defer close(done)
		published := map[string]bool{}
		for ctx.Err() == nil {
			s.mu.Lock()
			var fresh []string
			for node := range s.nodes {
				if !published[node] {
					fresh = append(fresh, node)
				}
			}
			s.mu.Unlock()
			for _, node := range fresh {
				if err := publish(node); err == nil || apierrors.IsAlreadyExists(err) {
					published[node] = true
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
}
