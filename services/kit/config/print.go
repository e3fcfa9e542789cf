package config

import (
	"io"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// printTo writes the settings as a file that Load would accept, with the source of each as a comment.
func printTo(w io.Writer, fs *pflag.FlagSet, sources map[string]string) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	settings(fs, func(f *pflag.Flag) {
		if f.Name == "config" {
			return // the file cannot name itself
		}
		source := sources[f.Name]
		if source == "" {
			source = "default"
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Name}
		value := node(f)
		if value.Kind == yaml.ScalarNode {
			value.LineComment = source
		} else {
			key.LineComment = source
		}
		root.Content = append(root.Content, key, value)
	})
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return err
	}
	return encoder.Close()
}

func node(f *pflag.Flag) *yaml.Node {
	if isSecret(f) {
		if f.Value.String() == "" {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: ""}
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "***"}
	}
	if many, ok := f.Value.(pflag.SliceValue); ok {
		out := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, text := range many.GetSlice() {
			out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text})
		}
		return out
	}
	out := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Value.String()}
	if out.Value == "" {
		out.Tag = "!!str"
	}
	return out
}
