package v1alpha1_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

type object = map[string]any

func definitions(t *testing.T) map[string]object {
	t.Helper()
	out := map[string]object{}
	for _, f := range crds.All() {
		var crd object
		if err := yaml.Unmarshal(f.YAML, &crd); err != nil {
			t.Fatal(err)
		}
		out[at(crd, "spec.names.kind").(string)] = crd
	}
	return out
}

func at(v any, path string) any {
	for _, step := range strings.Split(path, ".") {
		switch o := v.(type) {
		case object:
			v = o[step]
		default:
			return nil
		}
	}
	return v
}

func version(crd object) object { return at(crd, "spec.versions").([]any)[0].(object) }

func strs(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, e := range list {
		out = append(out, fmt.Sprint(e))
	}
	return out
}

// WIRE-10.1: names, scope, subresource and selectable field of each kind.
func TestDefinitionNames(t *testing.T) {
	for kind, want := range map[string]struct {
		scope, plural, singular string
		short                   []string
		selectable              string
	}{
		"CapacityRequest":   {"Namespaced", "capacityrequests", "capacityrequest", []string{"cr", "crs", "capreq"}, ".status.phase"},
		"AvailableCapacity": {"Cluster", "availablecapacities", "availablecapacity", []string{"avc"}, ""},
		"UpcomingNode":      {"Cluster", "upcomingnodes", "upcomingnode", []string{"upn"}, ""},
	} {
		t.Run(kind, func(t *testing.T) {
			crd := definitions(t)[kind]
			v := version(crd)
			for path, want := range map[string]string{
				"spec.group": "bigfleet.lucy.sh", "spec.scope": want.scope, "spec.names.plural": want.plural,
				"spec.names.singular": want.singular, "spec.names.listKind": kind + "List",
			} {
				if got := at(crd, path); got != want {
					t.Errorf("%s is %v, want %s", path, got, want)
				}
			}
			if got := strs(at(crd, "spec.names.shortNames")); !slices.Equal(got, want.short) {
				t.Errorf("short names %v, want %v", got, want.short)
			}
			if got := strs(at(crd, "spec.names.categories")); !slices.Equal(got, []string{"fleet"}) {
				t.Errorf("categories %v", got)
			}
			if v["name"] != "v1alpha1" || v["served"] != true || v["storage"] != true || at(v, "subresources.status") == nil {
				t.Errorf("version %v: served %v, storage %v, status %v", v["name"], v["served"], v["storage"], at(v, "subresources.status"))
			}
			var selectable []string
			fields, _ := v["selectableFields"].([]any)
			for _, f := range fields {
				selectable = append(selectable, f.(object)["jsonPath"].(string))
			}
			if strings.Join(selectable, ",") != want.selectable {
				t.Errorf("selectable fields %v, want %q", selectable, want.selectable)
			}
			if got := strs(at(v, "schema.openAPIV3Schema.required")); !slices.Equal(got, []string{"spec"}) {
				t.Errorf("root requires %v, want spec alone", got)
			}
		})
	}
}

// OP-17.2: prices are decimal dollars for people, and nothing where none is known.
func TestDollars(t *testing.T) {
	for amount, want := range map[float64]string{0.096: "0.096", 40: "40", 1.23456: "1.2346", 0: "", -1: "", math.Inf(1): ""} {
		if got := v1alpha1.Dollars(amount); got != want {
			t.Errorf("%v: %q, want %q", amount, got, want)
		}
	}
}

// WIRE-10.1, OP-17.1, OP-17.2: printer columns, ours with priority 1.
func TestPrinterColumns(t *testing.T) {
	want := map[string]string{
		"CapacityRequest": "Phase string .status.phase 0; Priority integer .spec.priority 0; Age date .metadata.creationTimestamp 0; " +
			`Reason string .status.conditions[?(@.type=="Fulfilled")].reason 1`,
		"AvailableCapacity": "Availability string .spec.availability 0; Available integer .spec.availableCount 0; Cost string .spec.cost 0; " +
			"USD/Hour string .spec.pricePerHour 0; CPU string .spec.resources.cpu 0; Memory string .spec.resources.memory 0; " +
			`Type string .spec.requirements[?(@.key=="node.kubernetes.io/instance-type")].values 0; Zone string .spec.requirements[?(@.key=="topology.kubernetes.io/zone")].values 0; ` +
			"Updated date .status.updatedAt 1",
		"UpcomingNode": "Phase string .status.phase 0; Node string .status.nodeRef.name 0; " +
			`Type string .spec.labels.node\.kubernetes\.io/instance-type 0; Zone string .spec.labels.topology\.kubernetes\.io/zone 0; ` +
			"Capacity string .spec.capacityType 0; USD/Hour string .spec.pricePerHour 0; " +
			"Age date .metadata.creationTimestamp 0; Machine string .spec.machineID 1; Error string .status.lastError 1",
	}
	for kind, crd := range definitions(t) {
		var got []string
		for _, c := range version(crd)["additionalPrinterColumns"].([]any) {
			c := c.(object)
			priority := c["priority"]
			if priority == nil {
				priority = 0
			}
			got = append(got, fmt.Sprintf("%s %s %s %v", c["name"], c["type"], c["jsonPath"], priority))
		}
		if strings.Join(got, "; ") != want[kind] {
			t.Errorf("%s columns\n got %s\nwant %s", kind, strings.Join(got, "; "), want[kind])
		}
	}
}

// WIRE-10.2: the schema has exactly the required fields and enums of the contract, so that no object which some
// producer writes today is refused tomorrow.
func TestRequiredFieldsAndEnums(t *testing.T) {
	want := map[string]string{
		"CapacityRequest spec required":                                             "priority,resources",
		"CapacityRequest spec.requirements[] required":                              "key,operator",
		"CapacityRequest spec.topologySpread[] required":                            "maxSkew,topologyKey,whenUnsatisfiable",
		"CapacityRequest spec.coLocation required":                                  "topologyKey",
		"CapacityRequest status required":                                           "phase",
		"CapacityRequest status.phase enum":                                         "Pending,Acknowledged",
		"AvailableCapacity spec required":                                           "availability,availableCount,cost,resources",
		"AvailableCapacity spec.requirements[] required":                            "key,operator",
		"AvailableCapacity spec.availability enum":                                  "None,Low,Medium,High",
		"UpcomingNode spec required":                                                "resources",
		"UpcomingNode spec.taints[] required":                                       "effect,key",
		"UpcomingNode status required":                                              "phase",
		"UpcomingNode status.phase enum":                                            "Provisioning,Launched,Registered,Ready,Draining,Drained,Failed",
		"CapacityRequest spec.gang required":                                        "name",
		"CapacityRequest spec.preferences[] required":                               "preference,weight",
		"CapacityRequest spec.preferences[].preference.matchExpressions[] required": "key,operator",
		"CapacityRequest spec.preferences[].preference.matchFields[] required":      "key,operator",
		"CapacityRequest spec.preferences[].preference atomic":                      "atomic",
		"CapacityRequest spec.coLocation.labelSelector atomic":                      "atomic",
		"CapacityRequest spec.topologySpread[].labelSelector atomic":                "atomic",
		"CapacityRequest spec.coLocation.namespaceSelector atomic":                  "atomic",
		"UpcomingNode status.nodeRef atomic":                                        "atomic",
	}
	got := map[string]string{}
	var walk func(kind, path string, schema object)
	walk = func(kind, path string, schema object) {
		for _, rule := range []string{"minimum", "maximum", "x-kubernetes-validations", "minItems", "maxItems"} {
			if schema[rule] != nil {
				t.Errorf("%s %s has rule %s", kind, path, rule)
			}
		}
		if r := strs(schema["required"]); len(r) > 0 && path != "" {
			got[kind+" "+path+" required"] = strings.Join(r, ",")
		}
		if e := strs(schema["enum"]); len(e) > 0 {
			got[kind+" "+path+" enum"] = strings.Join(e, ",")
		}
		if schema["x-kubernetes-map-type"] == "atomic" {
			got[kind+" "+path+" atomic"] = "atomic"
		}
		properties, _ := schema["properties"].(object)
		for name, p := range properties {
			switch {
			case name == "conditions" || name == "labelSelector" && at(p, "properties") == nil:
			case name == "labelSelector" || name == "namespaceSelector":
				if p.(object)["x-kubernetes-map-type"] == "atomic" {
					got[kind+" "+path+"."+name+" atomic"] = "atomic"
				}
			default:
				walk(kind, strings.TrimPrefix(path+"."+name, "."), p.(object))
			}
		}
		if items, ok := schema["items"].(object); ok {
			walk(kind, path+"[]", items)
		}
	}
	for kind, crd := range definitions(t) {
		walk(kind, "", at(version(crd), "schema.openAPIV3Schema").(object))
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: got %q, want %q", k, got[k], v)
		}
	}
	for k, v := range got {
		if want[k] == "" {
			t.Errorf("not in the contract: %s = %s", k, v)
		}
	}
}

// WIRE-10.7: the default sits on status itself, so that an object created without status reads as Pending.
func TestStatusDefault(t *testing.T) {
	status := at(version(definitions(t)["CapacityRequest"]), "schema.openAPIV3Schema.properties.status").(object)
	if at(status, "default.phase") != "Pending" {
		t.Errorf("default of status is %v", status["default"])
	}
}

// OP-13.3: who reads a hint reads what it is not.
func TestAHintSaysThatItIsNone(t *testing.T) {
	text, _ := at(version(definitions(t)["AvailableCapacity"]), "schema.openAPIV3Schema.description").(string)
	if !strings.Contains(text, "hint") || !strings.Contains(strings.ReplaceAll(text, "\n", " "), "never a reservation") {
		t.Errorf("kubectl explain availablecapacity says: %s", text)
	}
}

// Every field says what it is for: kubectl explain has no empty line.
func TestEveryFieldIsExplained(t *testing.T) {
	var walk func(kind, path string, schema object)
	walk = func(kind, path string, schema object) {
		if path != "" && path != "metadata" && schema["description"] == nil && !strings.HasSuffix(path, "[]") {
			t.Errorf("%s %s has no description", kind, path)
		}
		properties, _ := schema["properties"].(object)
		for name, p := range properties {
			walk(kind, strings.TrimPrefix(path+"."+name, "."), p.(object))
		}
		if items, ok := schema["items"].(object); ok {
			walk(kind, path+"[]", items)
		}
	}
	for kind, crd := range definitions(t) {
		walk(kind, "", at(version(crd), "schema.openAPIV3Schema").(object))
	}
}

func TestSchemeKnowsEveryKind(t *testing.T) {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for kind := range definitions(t) {
		for _, k := range []string{kind, kind + "List"} {
			if !s.Recognizes(v1alpha1.GroupVersion().WithKind(k)) {
				t.Errorf("the scheme does not know %s", k)
			}
		}
	}
}
