package hosts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"go.yaml.in/yaml/v3"
)

// Limits of an inventory.
const (
	hostsMax          = 20_000
	inventoryBytesMax = 32 << 20
	labelsMax         = 64
)

// labelRack is where a rack stands on a machine.
const labelRack = "topology.bigfleet/rack"

// Entry is one host of the inventory.
type Entry struct {
	Name       string            `yaml:"name"` // the agent's certificate carries bigfleet://host/<name>
	Type       string            `yaml:"type"`
	Zone       string            `yaml:"zone"`
	Rack       string            `yaml:"rack"`
	Capacity   string            `yaml:"capacity_type"` // bare_metal (default) or reserved
	Price      float64           `yaml:"price_per_hour"`
	Labels     map[string]string `yaml:"labels"`
	Taints     []Taint           `yaml:"taints"`
	Resources  map[string]string `yaml:"resources"`
	Allocate   map[string]string `yaml:"allocatable"`
	ProviderID string            `yaml:"provider_id"` // spec.providerID of its nodes; empty: hosts://<provider>/<name>
	Power      Power             `yaml:"power"`
}

// Taint is one taint that the node registers with.
type Taint struct {
	Key    string `yaml:"key"`
	Value  string `yaml:"value"`
	Effect string `yaml:"effect"`
}

type document struct {
	Defaults Entry   `yaml:"defaults"` // of every host that does not say otherwise
	Hosts    []Entry `yaml:"hosts"`
}

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// parseInventory names everything that is wrong at once.
func parseInventory(text []byte, providerName string) ([]Entry, error) {
	if len(text) > inventoryBytesMax {
		return nil, fmt.Errorf("the inventory has %d bytes; at most %d are allowed", len(text), inventoryBytesMax)
	}
	var doc document
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if len(doc.Hosts) > hostsMax {
		return nil, fmt.Errorf("the inventory has %d hosts; one provider can have at most %d: run several providers", len(doc.Hosts), hostsMax)
	}
	var all []error
	names, ids := map[string]bool{}, map[string]string{}
	for i := range doc.Hosts {
		h := &doc.Hosts[i]
		h.inherit(doc.Defaults)
		h.ProviderID = cmp.Or(h.ProviderID, "hosts://"+providerName+"/"+h.Name)
		if err := h.check(); err != nil {
			all = append(all, fmt.Errorf("host %d (%q): %w", i+1, h.Name, err))
		}
		if names[h.Name] {
			all = append(all, fmt.Errorf("host %q is listed twice", h.Name))
		}
		if other := ids[h.ProviderID]; other != "" {
			all = append(all, fmt.Errorf("hosts %q and %q have one provider_id %q", other, h.Name, h.ProviderID))
		}
		names[h.Name], ids[h.ProviderID] = true, h.Name
		if len(all) >= 20 {
			break // the rest is of the same kind
		}
	}
	return doc.Hosts, errors.Join(all...)
}

func (h *Entry) inherit(d Entry) {
	h.Type, h.Zone, h.Rack, h.Capacity = cmp.Or(h.Type, d.Type), cmp.Or(h.Zone, d.Zone), cmp.Or(h.Rack, d.Rack), cmp.Or(h.Capacity, d.Capacity, "bare_metal")
	h.Price = cmp.Or(h.Price, d.Price)
	labels := map[string]string{}
	for _, from := range []map[string]string{d.Labels, h.Labels} {
		for k, v := range from {
			labels[k] = v
		}
	}
	if h.Rack != "" {
		labels[labelRack] = h.Rack
	}
	h.Labels = labels
	if h.Taints == nil {
		h.Taints = d.Taints
	}
	if h.Resources == nil {
		h.Resources = d.Resources
	}
	if h.Allocate == nil {
		h.Allocate = d.Allocate
	}
	if h.Power == (Power{}) {
		h.Power = d.Power
	}
}

func (h *Entry) check() error {
	var all []error
	if !hostName.MatchString(h.Name) {
		all = append(all, errors.New("the name is not 1 to 63 of a-z, 0-9, '.' and '-'"))
	}
	if h.Type == "" || h.Zone == "" {
		all = append(all, errors.New("type and zone are required"))
	}
	if capacityTypes[h.Capacity] == 0 {
		all = append(all, fmt.Errorf("capacity_type %q is neither bare_metal nor reserved: these hosts cannot be returned", h.Capacity))
	}
	if len(h.Resources) == 0 {
		all = append(all, errors.New("resources are required, such as {cpu: \"32\", memory: 128Gi}"))
	}
	if len(h.Labels) > labelsMax {
		all = append(all, fmt.Errorf("%d labels; at most %d are allowed", len(h.Labels), labelsMax))
	}
	if strings.ContainsAny(h.ProviderID, " \t\n") || !strings.Contains(h.ProviderID, "://") {
		all = append(all, fmt.Errorf("provider_id %q does not have the form <cloud>://<id>", h.ProviderID))
	}
	return errors.Join(append(all, h.Power.check())...)
}

var capacityTypes = map[string]provider.CapacityType{"bare_metal": provider.BareMetal, "reserved": provider.Reserved}

func (h *Entry) attributes() provider.Attributes {
	a := provider.Attributes{
		InstanceType: h.Type, Zone: h.Zone, CapacityType: capacityTypes[h.Capacity], PricePerHour: h.Price, Labels: h.Labels,
		Resources: h.Resources, Allocatable: h.Allocate,
	}
	for _, t := range h.Taints {
		a.Taints = append(a.Taints, provider.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return a
}

// inventory is the file, read again when it changes. A file that cannot be read leaves the last good one in force: hosts do not
// vanish because somebody edits.
type inventory struct {
	file, provider string

	mu     sync.Mutex
	at     time.Time
	size   int64
	list   []Entry
	byName map[string]*Entry
	byRef  map[string]*Entry
}

// load reads the file if it changed. changed says that another list is in force now.
func (v *inventory) load() (changed bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	info, err := os.Stat(v.file)
	if err != nil {
		return false, fmt.Errorf("inventory: %w", err)
	}
	if info.ModTime().Equal(v.at) && info.Size() == v.size {
		return false, nil
	}
	text, err := os.ReadFile(v.file)
	if err != nil {
		return false, fmt.Errorf("inventory: %w", err)
	}
	v.at, v.size = info.ModTime(), info.Size() // a bad file is reported once
	list, err := parseInventory(text, v.provider)
	if err != nil {
		return false, fmt.Errorf("inventory %s: %w", v.file, err)
	}
	v.list, v.byName, v.byRef = list, map[string]*Entry{}, map[string]*Entry{}
	for i := range list {
		v.byName[list[i].Name], v.byRef[list[i].ProviderID] = &list[i], &list[i]
	}
	return true, nil
}

func (v *inventory) all() []Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.list // replaced as a whole
}

func (v *inventory) named(name string) *Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byName[name]
}

func (v *inventory) of(ref string) *Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byRef[ref]
}
