package config

import (
	"encoding/csv"
	"io"
	"slices"
	"strings"

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
		value := node(f)
		value.LineComment = source
		root.Content = append(root.Content, scalar(f.Name), value)
	})
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return err
	}
	return encoder.Close()
}

func node(f *pflag.Flag) *yaml.Node {
	text := f.Value.String()
	many, isList := f.Value.(pflag.SliceValue)
	switch {
	case isSecret(f) && text != "":
		return scalar("***")
	case isList:
		out := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range many.GetSlice() {
			out.Content = append(out.Content, scalar(item))
		}
		return out
	case isMapping(f):
		return mapping(text)
	case text == "":
		return scalar("")
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text} // plain, so that numbers and booleans stay what they are
	}
}

// scalar is a string, quoted where YAML would take it for something else.
func scalar(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// mapping reads what pflag's stringTo... flags print, [a=1,b=2] with CSV quoting, in the order of the keys.
func mapping(text string) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	if text == "" {
		return out
	}
	pairs, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return scalar(text)
	}
	slices.Sort(pairs)
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		out.Content = append(out.Content, scalar(key), scalar(value))
	}
	return out
}
