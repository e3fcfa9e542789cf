// Command protoc-gen-openapi is a protoc plugin that describes the unary RPCs of a package as Connect serves them.
//
// One OpenAPI 3.1 document for people with curl: POST /package.Service/Method with a JSON body, GET with the message in the
// query where a method has no side effects, proto3 JSON shapes, and errors as Connect writes them (`code`, `message`,
// `details`). Streaming RPCs need enveloped frames and are left out. Rules that JSON schema can say are carried over from
// protovalidate; the others stay with the server, which has the last word.
//
// Existing plugins describe gRPC-Gateway mappings, leave empty paths for streams, or get the error body wrong, and each
// would bring a large dependency. The output depends on the input alone, byte for byte.
//
// Options: file=NAME (output file), title=TEXT, version=TEXT, detail=MESSAGE (repeatable: error details to describe).
package main

import (
	"flag"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	var o options
	var flags flag.FlagSet
	flags.StringVar(&o.file, "file", "openapi.yaml", "")
	flags.StringVar(&o.title, "title", "", "")
	flags.StringVar(&o.version, "version", "", "")
	flags.Func("detail", "", func(s string) error { o.details = append(o.details, s); return nil })
	protogen.Options{ParamFunc: flags.Set}.Run(func(p *protogen.Plugin) error {
		p.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		doc, err := document(p, o)
		if err != nil {
			return err
		}
		out := p.NewGeneratedFile(o.file, "")
		enc := yaml.NewEncoder(out)
		enc.SetIndent(2)
		if err := enc.Encode(doc); err != nil {
			return fmt.Errorf("write %s: %w", o.file, err)
		}
		return enc.Close()
	})
}

type options struct {
	file, title, version string
	details              []string
}

// object is a YAML mapping that keeps its order.
type object []entry

type entry struct {
	key   string
	value any
}

func (o object) with(key string, value any) object { return append(o, entry{key, value}) }

// MarshalYAML implements yaml.Marshaler.
func (o object) MarshalYAML() (any, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, e := range o {
		var key, value yaml.Node
		if err := key.Encode(e.key); err != nil {
			return nil, err
		}
		if err := value.Encode(e.value); err != nil {
			return nil, err
		}
		node.Content = append(node.Content, &key, &value)
	}
	return node, nil
}

// text joins the lines of a comment into paragraphs; an empty line separates them.
func text(c protogen.Comments) string {
	var paragraphs []string
	var lines []string
	flush := func() {
		if len(lines) > 0 {
			paragraphs = append(paragraphs, strings.Join(lines, " "))
		}
		lines = nil
	}
	for line := range strings.Lines(string(c)) {
		if line = strings.TrimSpace(line); line == "" {
			flush()
			continue
		}
		lines = append(lines, line)
	}
	flush()
	return strings.Join(paragraphs, "\n\n")
}
