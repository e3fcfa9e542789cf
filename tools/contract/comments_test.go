package contract_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/bigfleet-dev/bigfleet/tools/contract"
)

// WIRE-15 (conventions): everything in proto/ has a comment, and where the tables give a meaning the comment begins with it and
// continues with the soft rules. Readers of the proto, of gen/go, gen/ts and gen/openapi then read the specification.
func TestCommentsSayWhatTheTablesSay(t *testing.T) {
	image, err := buf(t, root, "build", "--path", "proto/bigfleet", "-o", "-#format=binpb")
	if err != nil {
		t.Fatal(err)
	}
	c := commentCheck{t: t, spec: spec(t)}
	for _, fd := range descriptors(t, image) {
		c.file = fd
		for i := range fd.Services().Len() {
			c.service(fd.Services().Get(i))
		}
		for i := range fd.Messages().Len() {
			c.message(fd.Messages().Get(i))
		}
		c.enums(fd.Enums())
	}
}

type commentCheck struct {
	t    *testing.T
	spec *contract.Spec
	file protoreflect.FileDescriptor
}

// begins checks that the comment of d exists and begins with the sentences, each an entry of the tables.
func (c commentCheck) begins(d protoreflect.Descriptor, sentences ...string) {
	c.t.Helper()
	comment := plain(c.file.SourceLocations().ByDescriptor(d).LeadingComments)
	if comment == "" {
		c.t.Errorf("%s has no comment", d.FullName())
		return
	}
	for _, s := range sentences {
		if s = plain(s); s == "" {
			continue
		}
		rest, ok := strings.CutPrefix(comment, s)
		if !ok {
			c.t.Errorf("%s: the comment says\n\t%s\nwhere wire.md says\n\t%s", d.FullName(), comment, s)
			return
		}
		comment = strings.TrimLeft(rest, ". ")
	}
}

// plain folds white space and drops the last full stop, which tables leave out.
func plain(s string) string { return strings.TrimSuffix(strings.Join(strings.Fields(s), " "), ".") }

func (c commentCheck) service(s protoreflect.ServiceDescriptor) {
	want := c.spec.Service(string(s.Name()))
	if want == nil {
		c.t.Errorf("%s is not in the tables", s.FullName())
		return
	}
	c.begins(s, want.Doc)
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		for _, r := range want.RPCs {
			if r.Name == string(m.Name()) {
				c.begins(m, r.Meaning)
			}
		}
	}
}

func (c commentCheck) message(m protoreflect.MessageDescriptor) {
	want := c.spec.Message(string(m.Name()))
	if want == nil {
		c.t.Errorf("%s is not in the tables", m.FullName())
		return
	}
	c.begins(m, want.Doc)
	for _, f := range want.Fields {
		fd := m.Fields().ByName(protoreflect.Name(f.Name))
		if fd == nil {
			c.t.Errorf("%s has no field %s", m.FullName(), f.Name)
			continue
		}
		c.begins(fd, append([]string{f.Meaning}, softRules(f.Soft)...)...)
	}
	for i := range m.Oneofs().Len() {
		if o := m.Oneofs().Get(i); !o.IsSynthetic() {
			c.begins(o)
		}
	}
	c.enums(m.Enums())
}

// softRules turns "a; b; owner: c" into "Soft: a; b" and "Owner: c", as the protos write them.
func softRules(cell string) []string {
	soft, owner, found := strings.Cut(cell, "owner: ")
	var out []string
	if soft = strings.TrimSuffix(strings.TrimSpace(soft), ";"); soft != "" {
		out = append(out, "Soft: "+soft)
	}
	if found {
		out = append(out, "Owner: "+owner)
	}
	return out
}

func (c commentCheck) enums(enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		e := enums.Get(i)
		want := c.spec.Enum(strings.TrimPrefix(string(e.FullName()), contract.Package+"."))
		if want == nil {
			c.t.Errorf("%s is not in the tables", e.FullName())
			continue
		}
		c.begins(e, want.Doc)
		for _, v := range want.Values {
			if vd := e.Values().ByName(protoreflect.Name(v.Name)); vd != nil {
				c.begins(vd, v.Meaning)
			}
		}
	}
}
