package provider

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// offers is the catalogue in force: which slots there ought to be and what they look like.
type offers struct {
	wanted *catalogue // set by New, in force once offer ran

	mu        sync.Mutex
	current   *catalogue
	shapes    map[string]*lifecycle.Shape // by wire form, so that equal machines share one
	quotes    map[string]Quote            // newest, by offering
	withdrawn map[string]bool             // offerings whose price is too old (PROV-28.5)
}

// intern returns the one copy of a shape.
func (o *offers) intern(s *lifecycle.Shape) *lifecycle.Shape {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shapes == nil || len(o.shapes) > 100_000 { // shapes of hosts that are gone are not removed one by one: start again
		o.shapes = map[string]*lifecycle.Shape{}
	}
	if known := o.shapes[string(s.Wire())]; known != nil {
		return known
	}
	o.shapes[string(s.Wire())] = s
	return s
}

// shape is what a slot of the offering looks like now, nil when there is no such offering.
func (o *offers) shape(key string) *lifecycle.Shape {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current == nil || o.current.byKey[key] == nil {
		return nil
	}
	return o.current.byKey[key].shape
}

// has says whether the offering still has that slot.
func (o *offers) has(origin lifecycle.Origin) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current == nil {
		return true
	}
	one := o.current.byKey[origin.Offering]
	return one != nil && origin.Index < one.Count && !o.withdrawn[origin.Offering]
}

// SetOfferings takes another list of offerings into force: a raised count adds slots, a lowered one removes them while
// they are Speculative, highest index first; the others go when they return (PROV-15.9). A list with an error is refused
// whole and the old one stays.
func (p *Provider) SetOfferings(list ...Offering) error {
	c, err := newCatalogue(p.name, list, p.backend)
	if err != nil {
		return fmt.Errorf("the offerings were not changed: %w", err)
	}
	select {
	case <-p.ready:
	default:
		return p.unread()
	}
	return p.offer(c)
}

// offer compares the slots there are with those there ought to be. What is stored is compared, never added again
// (PROV-12.3).
func (p *Provider) offer(c *catalogue) error {
	p.offers.mu.Lock()
	p.offers.current = c
	for _, o := range c.order {
		if q, ok := p.offers.quotes[o.key]; ok {
			_ = o.reprice(q) // the price of the file stays where a quote is no price
		}
	}
	p.offers.mu.Unlock()

	have := map[lifecycle.Origin]bool{} // without generation
	batch := p.newBatch()
	for row := range p.inventory.All() {
		r := row.Record
		if r.Origin.Offering == "" {
			continue
		}
		have[lifecycle.Origin{Offering: r.Origin.Offering, Index: r.Origin.Index}] = true
		if err := batch.change(r.ID, func(now *lifecycle.Record) (*lifecycle.Record, bool) { return p.fit(now) }); err != nil {
			return err
		}
	}
	for _, o := range c.order {
		for i := range o.Count {
			at := lifecycle.Origin{Offering: o.key, Index: i}
			if have[at] || !p.offers.has(at) {
				continue
			}
			at.Generation = p.generation(at)
			if err := batch.add(lifecycle.NewSlot(machineID(p.name, o.key, i, at.Generation), at, o.shape, batch.now)); err != nil {
				return err
			}
		}
	}
	return batch.flush()
}

// fit says what the catalogue makes of a machine at rest: another shape, removal, or nothing.
func (p *Provider) fit(r *lifecycle.Record) (next *lifecycle.Record, remove bool) {
	if r == nil || r.State == lifecycle.Failed || lifecycle.InFlight(r.State) != 0 {
		return nil, false
	}
	if !p.offers.has(r.Origin) {
		return nil, r.State == lifecycle.Speculative
	}
	shape := p.offers.shape(r.Origin.Offering)
	if shape == r.Shape || shape == nil {
		return nil, false
	}
	if r.State != lifecycle.Speculative {
		// A host has its own attributes, from Describe. Only money and estimate follow the offering, unless an interruption
		// was announced.
		a := cloneAttributes(r.Shape.Attributes())
		b := shape.Attributes()
		if a.InterruptionProbability < 1 {
			a.InterruptionProbability = b.InterruptionProbability
		}
		a.PricePerHour, a.DrainEstimate = b.PricePerHour, b.DrainEstimate
		own, err := lifecycle.NewShape(a)
		if err != nil {
			p.reject("offering", r.ID, err)
			return nil, false
		}
		shape = p.offers.intern(own)
	}
	if string(shape.Wire()) == string(r.Shape.Wire()) {
		return nil, false
	}
	return lifecycle.Refresh(r, shape), false
}

// returned is called with the slot held once a machine is Speculative again: an offering that shrank meanwhile takes it
// out now.
func (p *Provider) returned(slot *inventory.Slot, r *lifecycle.Record) {
	if r.Origin.Offering == "" || p.offers.has(r.Origin) {
		return
	}
	if err := p.inventory.Commit(inventory.Change{Slot: slot, Remove: true}); err != nil {
		p.log.Error("a slot that is no longer offered could not be removed", "machine", r.ID, "err", err)
	}
}

// generation is the number of lives that the slot has had; it is stored when it rises above 1, so that an id that ended
// never comes back for another machine.
func (p *Provider) generation(at lifecycle.Origin) int {
	b := p.inventory.Setting(generationKey(at))
	if len(b) != 8 {
		return 1
	}
	return int(binary.BigEndian.Uint64(b))
}

func (p *Provider) setGeneration(at lifecycle.Origin) error {
	return p.inventory.SetSetting(generationKey(at), binary.BigEndian.AppendUint64(nil, uint64(at.Generation)))
}

func generationKey(at lifecycle.Origin) string {
	return fmt.Sprintf("generation/%s/%d", at.Offering, at.Index)
}

// batch collects changes of machines at rest and commits them in bulk, holding the slots from the look to the commit.
type batch struct {
	p       *Provider
	now     time.Time
	changes []inventory.Change
	done    []string // ids that the flushed batches changed
}

func (p *Provider) newBatch() *batch { return &batch{p: p, now: time.Now()} }

// batchHold bounds how many machines are locked while the batch waits for its commit.
const batchHold = 512

// change looks at the machine as it is now, under its lock, and takes what decide makes of it.
func (b *batch) change(id string, decide func(*lifecycle.Record) (next *lifecycle.Record, remove bool)) error {
	if next, remove := decide(recordOf(b.p.inventory.Get(id))); next == nil && !remove {
		return nil // the common case costs no lock
	}
	slot := b.p.inventory.Acquire(id)
	next, remove := decide(slot.Record())
	if next == nil && !remove {
		b.p.inventory.Release(slot)
		return nil
	}
	return b.append(inventory.Change{Slot: slot, Record: next, Remove: remove}, id)
}

// add makes a machine that is not there yet.
func (b *batch) add(r *lifecycle.Record) error {
	slot := b.p.inventory.Acquire(r.ID)
	if slot.Record() != nil {
		b.p.inventory.Release(slot)
		return nil
	}
	return b.append(inventory.Change{Slot: slot, Record: r}, r.ID)
}

func (b *batch) append(c inventory.Change, id string) error {
	b.changes = append(b.changes, c)
	b.done = append(b.done, id)
	if len(b.changes) >= batchHold {
		return b.flush()
	}
	return nil
}

func (b *batch) flush() error {
	if len(b.changes) == 0 {
		return nil
	}
	err := b.p.inventory.CommitBulk(b.changes)
	for _, c := range b.changes {
		b.p.inventory.Release(c.Slot)
	}
	b.changes = b.changes[:0]
	return err
}

func recordOf(row *inventory.Row) *lifecycle.Record {
	if row == nil {
		return nil
	}
	return row.Record
}
