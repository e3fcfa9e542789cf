package contract

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Strip reduces compiled files to the contract: messages and enums of section 14, their fields below ExtensionStart, the
// RPCs that take such a message. Options go, except idempotency_level: rules may be corrected, names and numbers may not.
// What is left needs no import from outside and is the same for every set of extensions.
func Strip(files []protoreflect.FileDescriptor, s *Spec) *descriptorpb.FileDescriptorSet {
	x := stripper{spec: s, home: map[string]string{}}
	out := &descriptorpb.FileDescriptorSet{}
	for _, fd := range files {
		if f := x.file(protodesc.ToFileDescriptorProto(fd)); f != nil {
			out.File = append(out.File, f)
		}
	}
	for _, f := range out.File {
		x.imports(f)
	}
	slices.SortFunc(out.File, func(a, b *descriptorpb.FileDescriptorProto) int { // importers after what they import
		return slices.Index(importOrder, a.GetName()) - slices.Index(importOrder, b.GetName())
	})
	return out
}

// importOrder is the order in which the contract files build (WIRE-2.1).
var importOrder = []string{protoPath("capacity"), protoPath("provider"), protoPath("shardread"), protoPath("shard"), protoPath("coordinator")}

type stripper struct {
	spec *Spec
	home map[string]string // full type name -> path of its file
}

func (x *stripper) contractMessage(name string) bool {
	m := x.spec.Message(name)
	return m != nil && m.Contract
}

func (x *stripper) contractEnum(name string) bool {
	e := x.spec.Enum(name)
	return e != nil && e.Contract
}

func (x *stripper) file(f *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	out := &descriptorpb.FileDescriptorProto{Name: f.Name, Package: f.Package, Syntax: f.Syntax}
	for _, m := range f.GetMessageType() {
		if x.contractMessage(m.GetName()) {
			out.MessageType = append(out.MessageType, x.message(m))
			x.home["."+Package+"."+m.GetName()] = f.GetName()
		}
	}
	for _, e := range f.GetEnumType() {
		if x.contractEnum(e.GetName()) {
			out.EnumType = append(out.EnumType, plainEnum(e))
			x.home["."+Package+"."+e.GetName()] = f.GetName()
		}
	}
	for _, s := range f.GetService() {
		service := &descriptorpb.ServiceDescriptorProto{Name: s.Name}
		for _, r := range s.GetMethod() {
			if x.contractMessage(r.GetInputType()[len(Package)+2:]) {
				service.Method = append(service.Method, proto.CloneOf(r))
			}
		}
		if len(service.Method) > 0 {
			out.Service = append(out.Service, service)
		}
	}
	if len(out.MessageType)+len(out.EnumType)+len(out.Service) == 0 {
		return nil
	}
	return out
}

func (x *stripper) message(m *descriptorpb.DescriptorProto) *descriptorpb.DescriptorProto {
	out := &descriptorpb.DescriptorProto{Name: m.Name, ReservedRange: m.ReservedRange, ReservedName: m.ReservedName}
	entries := map[string]bool{}
	oneofs := map[int32]int32{} // old index to new
	for _, f := range m.GetField() {
		if f.GetNumber() >= ExtensionStart {
			continue
		}
		f = proto.CloneOf(f)
		f.Options = nil
		if f.OneofIndex != nil {
			i, ok := oneofs[f.GetOneofIndex()]
			if !ok {
				i = int32(len(out.OneofDecl))
				oneofs[f.GetOneofIndex()] = i
				out.OneofDecl = append(out.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: m.GetOneofDecl()[f.GetOneofIndex()].Name})
			}
			f.OneofIndex = proto.Int32(i)
		}
		entries[f.GetTypeName()] = true
		out.Field = append(out.Field, f)
	}
	for _, n := range m.GetNestedType() {
		if entries["."+Package+"."+m.GetName()+"."+n.GetName()] {
			out.NestedType = append(out.NestedType, proto.CloneOf(n))
		}
	}
	for _, e := range m.GetEnumType() {
		if x.contractEnum(m.GetName() + "." + e.GetName()) {
			out.EnumType = append(out.EnumType, plainEnum(e))
		}
	}
	return out
}

func plainEnum(e *descriptorpb.EnumDescriptorProto) *descriptorpb.EnumDescriptorProto {
	out := &descriptorpb.EnumDescriptorProto{Name: e.Name, ReservedRange: e.ReservedRange, ReservedName: e.ReservedName}
	for _, v := range e.GetValue() {
		out.Value = append(out.Value, &descriptorpb.EnumValueDescriptorProto{Name: v.Name, Number: v.Number})
	}
	return out
}

// imports names exactly the files whose types f still uses.
func (x *stripper) imports(f *descriptorpb.FileDescriptorProto) {
	used := map[string]bool{}
	use := func(typeName string) {
		if home := x.home[typeName]; home != "" && home != f.GetName() {
			used[home] = true
		}
	}
	for _, m := range f.GetMessageType() {
		for _, fd := range m.GetField() {
			use(fd.GetTypeName())
		}
		for _, n := range m.GetNestedType() { // map entries
			for _, fd := range n.GetField() {
				use(fd.GetTypeName())
			}
		}
	}
	for _, s := range f.GetService() {
		for _, r := range s.GetMethod() {
			use(r.GetInputType())
			use(r.GetOutputType())
		}
	}
	for _, path := range importOrder {
		if used[path] {
			f.Dependency = append(f.Dependency, path)
		}
	}
}
