package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// world is a Store with the class gpu.example.com, all kinds known, and what changed.
type world struct {
	*Store
	heard  []types.UID
	needed map[schema.GroupVersionResource]bool
}

func newWorld(t *testing.T) *world {
	w := &world{needed: map[schema.GroupVersionResource]bool{}}
	w.Store = New(func(uids []types.UID) { w.heard = append(w.heard, uids...) }, func(kind schema.GroupVersionResource) { w.needed[kind] = true })
	for _, kind := range Kinds() {
		w.setServed(kind, true)
		w.setComplete(kind)
	}
	w.set(t, classes, "", "gpu.example.com", `{kind: DeviceClass}`)
	return w
}

func (w *world) set(t *testing.T, kind schema.GroupVersionResource, namespace, name, text string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	stripped, err := strip(o)
	if err != nil {
		t.Fatal(err)
	}
	w.setObject(kind, namespace, name, stripped.(*unstructured.Unstructured))
}

// hears returns who heard of a change.
func (w *world) hears(change func()) []types.UID {
	w.heard = nil
	change()
	slices.Sort(w.heard)
	return slices.Compact(w.heard)
}

func pod(t *testing.T, name, claim string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(`{metadata: {namespace: a, name: `+name+`, uid: `+name+`}, spec: {resourceClaims: [`+claim+`]}}`), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func show(d Demand) string {
	var out []string
	for _, class := range slices.Sorted(maps.Keys(d.Devices)) {
		out = append(out, fmt.Sprint(class, "=", d.Devices[class]))
	}
	for _, r := range d.Attributes {
		out = append(out, fmt.Sprint(r.Key, " ", r.Operator, " ", strings.Join(r.Values, ",")))
	}
	return strings.Join(out, "; ")
}

// OP-15.32: counts of devices and comparisons of attributes are read; everything else is refused with its field.
func TestClaims(t *testing.T) {
	const class = `deviceClassName: gpu.example.com`
	attribute := func(cel string) string {
		return `requests: [{name: r, exactly: {` + class + `, selectors: [{cel: {expression: '` + cel + `'}}]}}]`
	}
	for devices, want := range map[string]string{
		`requests: [{name: r, exactly: {` + class + `}}]`:                                                               "gpu.example.com=1",
		`requests: [{name: r, exactly: {` + class + `, allocationMode: ExactCount, count: 4}}], config: [{opaque: {}}]`: "gpu.example.com=4",
		`requests: [{name: r, exactly: {` + class + `}}, {name: s, exactly: {` + class + `, count: 2}}]`:                "gpu.example.com=3",
		`requests: [{name: r, exactly: {` + class + `}}], constraints: [{requests: [r], matchAttribute: a/b}]`:          "gpu.example.com=1",
		attribute(`device.attributes["gpu.example.com"].model == "h100"`):                                               "gpu.example.com=1; gpu.example.com/model In h100",
		attribute(`device.attributes["a.b"].x == 8 && device.attributes["a.b"].y == true`):                              "gpu.example.com=1; a.b/x In 8; a.b/y In true",

		`requests: [{name: r, firstAvailable: [{name: x, ` + class + `}]}]`:                                                          `request "r" is a choice (firstAvailable)`,
		`requests: [{name: r, exactly: {` + class + `, allocationMode: All}}]`:                                                       `request "r" has allocationMode All`,
		`requests: [{name: r, exactly: {` + class + `, adminAccess: true}}]`:                                                         `request "r" has adminAccess`,
		`requests: [{name: r, exactly: {` + class + `, capacity: {requests: {memory: 1Gi}}}}]`:                                       `request "r" has capacity`,
		`requests: [{name: r, exactly: {` + class + `, count: 513}}]`:                                                                `request "r" has count 513`,
		`requests: [{name: r, exactly: {deviceClassName: other}}]`:                                                                   `request "r" names the DeviceClass other, which does not exist`,
		`requests: [{name: r, exactly: {` + class + `}}, {name: s, exactly: {` + class + `}}], constraints: [{matchAttribute: a/b}]`: "has constraints between devices",
		`requests: [{name: r, exactly: {` + class + `, count: 2}}], constraints: [{requests: [r], matchAttribute: a/b}]`:             "has constraints between devices",
		attribute(`device.driver == "x"`):                                                                                            `request "r" has a selector (number 1)`,
		attribute(`device.attributes["a.b"].x == "h100" || true`):                                                                    `request "r" has a selector (number 1)`,
		attribute(`device.attributes["a.b"].x == "no label value"`):                                                                  `request "r" has a selector (number 1)`,
		attribute(`device.attributes["a.b"].x == "a && b"`):                                                                          `request "r" has a selector (number 1)`,
		attribute(`device.attributes["a.b"].x != "h100"`):                                                                            `request "r" has a selector (number 1)`,
		attribute(`device.capacity["a.b"].memory.compareTo(quantity("10Gi")) >= 0`):                                                  `request "r" has a selector (number 1)`,
	} {
		w := newWorld(t)
		w.set(t, templates, "a", "tpl", `{kind: ResourceClaimTemplate, spec: {spec: {devices: {`+devices+`}}}}`)
		w.set(t, claims, "a", "own", `{kind: ResourceClaim, spec: {devices: {`+devices+`}}}`)
		for _, by := range []string{"resourceClaimTemplateName: tpl", "resourceClaimName: own"} {
			p := pod(t, "p", "{name: gpu, "+by+"}")
			w.SetPod(p)
			d, why, read := w.Of(p)
			switch refused := !strings.Contains(want, "gpu.example.com=1") && !strings.Contains(want, "gpu.example.com=4") && !strings.Contains(want, "gpu.example.com=3"); {
			case !read:
				t.Errorf("%s is not read", devices)
			case refused && (!strings.Contains(why, want) || !strings.Contains(why, `spec.resourceClaims "gpu"`) || len(d.Devices) > 0):
				t.Errorf("%s: %q and %s, want %q", devices, why, show(d), want)
			case !refused && (why != "" || show(d) != want):
				t.Errorf("%s: %q, %q, want %q", devices, show(d), why, want)
			}
		}
	}
}

// OP-15.32: nothing is decided before all kinds are known; who asks hears when they are, or that they cannot be read.
func TestNothingIsDecidedTooEarly(t *testing.T) {
	w := newWorld(t)
	w.Store = New(w.changed, w.Store.needed)
	p := pod(t, "p", "{name: gpu, resourceClaimTemplateName: tpl}")
	w.SetPod(p)
	if len(w.needed) != len(Kinds()) {
		t.Errorf("needed are %v", w.needed)
	}
	for _, kind := range Kinds() {
		if _, why, read := w.Of(p); read || why != "" {
			t.Errorf("before %s is known: %q, read %v", kind.Resource, why, read)
		}
		w.setServed(kind, true)
		if heard := w.hears(func() { w.setComplete(kind) }); !slices.Equal(heard, []types.UID{"p"}) {
			t.Errorf("%s: %v hear of it", kind.Resource, heard)
		}
	}
	if _, why, read := w.Of(p); !read || !strings.Contains(why, "ResourceClaimTemplate tpl does not exist") {
		t.Errorf("%q, read %v", why, read)
	}
	w = newWorld(t)
	w.Store = New(w.changed, w.Store.needed)
	w.SetPod(p)
	if heard := w.hears(func() { w.setServed(claims, false) }); !slices.Equal(heard, []types.UID{"p"}) {
		t.Errorf("%v hear that claims cannot be read", heard)
	}
	if _, why, read := w.Of(p); !read || !strings.Contains(why, "resourceclaims.resource.k8s.io cannot be read") {
		t.Errorf("%q, read %v", why, read)
	}
}

// OP-15.32: changes of a template, a claim and a class are news for those who use them; a claim of two Pods is refused as long as there are two; and nothing is
// left of Pods that are gone.
func TestUsersHearOfChanges(t *testing.T) {
	w := newWorld(t)
	const ask = `devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}`
	own, second := pod(t, "own", "{name: gpu, resourceClaimName: c}"), pod(t, "second", "{name: gpu, resourceClaimName: c}")
	of := pod(t, "of", "{name: gpu, resourceClaimTemplateName: c}")
	w.SetPod(own)
	w.SetPod(of)
	for kind, who := range map[schema.GroupVersionResource][]types.UID{claims: {"own"}, templates: {"of"}} {
		text := map[schema.GroupVersionResource]string{claims: `{kind: ResourceClaim, spec: {` + ask + `}}`, templates: `{kind: ResourceClaimTemplate, spec: {spec: {` + ask + `}}}`}[kind]
		if heard := w.hears(func() { w.set(t, kind, "a", "c", text) }); !slices.Equal(heard, who) {
			t.Errorf("%s: %v heard", kind.Resource, heard)
		}
		if heard := w.hears(func() { w.set(t, kind, "b", "c", text) }); len(heard) > 0 {
			t.Errorf("%s of another namespace: %v heard", kind.Resource, heard)
		}
	}
	if heard := w.hears(func() { w.setObject(classes, "", "gpu.example.com", nil) }); !slices.Equal(heard, []types.UID{"of", "own"}) {
		t.Errorf("class: %v heard", heard)
	}
	w.set(t, classes, "", "gpu.example.com", `{kind: DeviceClass}`)
	if heard := w.hears(func() { w.SetPod(second) }); !slices.Contains(heard, "own") {
		t.Errorf("of a second user: %v heard", heard)
	}
	for _, p := range []*corev1.Pod{own, second} {
		if _, why, _ := w.Of(p); !strings.Contains(why, "ResourceClaim c is shared by several Pods") {
			t.Errorf("%s: %q", p.Name, why)
		}
	}
	if heard := w.hears(func() { w.DeletePod(second) }); !slices.Contains(heard, "own") {
		t.Errorf("of the end of the second user: %v heard", heard)
	}
	if d, why, _ := w.Of(own); why != "" || show(d) != "gpu.example.com=1" {
		t.Errorf("alone: %s, %q", show(d), why)
	}
	w.DeletePod(own)
	if w.DeletePod(of); len(w.users) > 0 {
		t.Errorf("left: %v", w.users)
	}
}
