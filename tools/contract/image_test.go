package contract_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/bigfleet-dev/bigfleet/tools/contract"
)

// buf runs the pinned buf in dir and returns its standard output. It builds the tools when they are missing.
func buf(t testing.TB, dir string, args ...string) ([]byte, error) {
	t.Helper()
	path, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return run(t.Context(), dir, path, args...)
}

// installed builds the tools once and returns the absolute path of buf.
var installed = sync.OnceValues(func() (string, error) {
	if out, err := exec.Command(filepath.Join(root, "tools", "install.sh"), "api").CombinedOutput(); err != nil {
		return "", fmt.Errorf("tools/install.sh api: %w\n%s", err, out)
	}
	return filepath.Abs(filepath.Join(root, ".bin", "buf"))
})

func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return cmd.Output()
}

func readImage(t testing.TB, path string) []protoreflect.FileDescriptor {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return descriptors(t, raw)
}

// descriptors returns the files of our package in a serialised image, sorted by path.
func descriptors(t testing.TB, image []byte) []protoreflect.FileDescriptor {
	t.Helper()
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(image, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatalf("the image does not stand on its own: %v", err)
	}
	var out []protoreflect.FileDescriptor
	files.RangeFilesByPackage(contract.Package, func(fd protoreflect.FileDescriptor) bool {
		out = append(out, fd)
		return true
	})
	slices.SortFunc(out, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	return out
}

// WIRE-1.4, 13.4: without extensions, the schema of today is the committed contract image to the byte. So no number below 1000
// was ever added, moved or dropped.
func TestContractImageIsWhatIsLeftWithoutExtensions(t *testing.T) {
	path := filepath.Join(root, "proto", "baseline", "contract.binpb")
	stripped := contract.Strip(contract.Generated(), spec(t))
	got, err := proto.MarshalOptions{Deterministic: true}.Marshal(stripped)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	for _, line := range difference("contract.binpb", contract.Listing(readImage(t, path)), "proto", contract.Listing(descriptors(t, got))) {
		t.Error(line)
	}
	t.Error("the contract changed. It never may: undo the change, and never write the image again")
}

// The image holds section 14 and nothing else.
func TestContractImageHoldsNoExtension(t *testing.T) {
	s := spec(t)
	for _, fd := range readImage(t, filepath.Join(root, "proto", "baseline", "contract.binpb")) {
		for i := range fd.Messages().Len() {
			m := fd.Messages().Get(i)
			if in := s.Message(string(m.Name())); in == nil || !in.Contract {
				t.Errorf("%s is not in section 14", m.FullName())
			}
			for j := range m.Fields().Len() {
				if f := m.Fields().Get(j); f.Number() >= contract.ExtensionStart {
					t.Errorf("%s is an extension", f.FullName())
				}
			}
		}
	}
	// Every contract field, enum and RPC is in it.
	image := contract.Listing(readImage(t, filepath.Join(root, "proto", "baseline", "contract.binpb")))
	only := contract.Spec{Services: []contract.Service{*s.Service("Shard"), *s.Service("CapacityProvider"), *s.Service("Coordinator")}}
	for _, m := range s.Messages {
		if !m.Contract {
			continue
		}
		m.Rules, m.Fields = nil, slices.DeleteFunc(slices.Clone(m.Fields), func(f contract.Field) bool { return f.Number >= contract.ExtensionStart })
		for i := range m.Fields {
			m.Fields[i].Rules = nil
		}
		only.Messages = append(only.Messages, m)
	}
	for _, e := range s.Enums {
		if e.Contract {
			only.Enums = append(only.Enums, e)
		}
	}
	for _, line := range only.Listing() {
		if !slices.Contains(image, line) {
			t.Errorf("not in the image: %s", line)
		}
	}
}

// gen/go is what proto/ compiles to. (tools/proto.sh generate-check compares the text; this needs no plugin.)
func TestGeneratedGoIsWhatProtoSays(t *testing.T) {
	image, err := buf(t, root, "build", "--path", "proto/bigfleet", "-o", "-#format=binpb")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range difference("gen/go", contract.Listing(contract.Generated()), "proto", contract.Listing(descriptors(t, image))) {
		t.Error(line)
	}
}

// WIRE-1.1, 2.4: proto3, the package, no language option in any proto; managed mode adds the Go package alone.
func TestFileOptions(t *testing.T) {
	image, err := buf(t, root, "build", "--path", "proto/bigfleet", "-o", "-#format=binpb")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range descriptors(t, image) {
		if fd.Syntax() != protoreflect.Proto3 {
			t.Errorf("%s: syntax %v", fd.Path(), fd.Syntax())
		}
		if o := fd.Options(); proto.Size(o) != 0 {
			t.Errorf("%s carries options: %v", fd.Path(), o)
		}
	}
	const want = "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1;bigfleetv1alpha1"
	for _, fd := range contract.Generated() {
		if got := fd.Options().(*descriptorpb.FileOptions).GetGoPackage(); got != want {
			t.Errorf("%s: go_package %q, want %q", fd.Path(), got, want)
		}
	}
}

// gen/go holds generated files and nothing else, so that regenerating can never lose work.
func TestGenHoldsNoHandWrittenFile(t *testing.T) {
	err := filepath.WalkDir(filepath.Join(root, "gen", "go"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "go.mod" || d.Name() == "go.sum" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && !bytes.HasPrefix(text, []byte("// Code generated by protoc-gen-")) {
			t.Errorf("%s is not generated", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
