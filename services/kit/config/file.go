package config

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// fileBytesMax is far above any file a person writes; it keeps a wrong path (a disk image) out of memory.
const fileBytesMax = 1 << 20

// fromFile fills flags from a YAML mapping of flag names, which was read from path.
func fromFile(fs *pflag.FlagSet, path string, root *yaml.Node, sources map[string]string) []error {
	if root == nil {
		return nil
	}
	at := func(n *yaml.Node) string { return fmt.Sprintf("%s:%d:%d", path, n.Line, n.Column) }
	if root.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("%s: want settings as `name: value`", at(root))}
	}
	var errs []error
	first := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], resolve(root.Content[i+1])
		if line, twice := first[key.Value]; twice {
			errs = append(errs, fmt.Errorf("%s: %q is set twice, first in line %d", at(key), key.Value, line))
			continue
		}
		first[key.Value] = key.Line
		f := fs.Lookup(key.Value)
		if f == nil || key.Value == "config" || key.Value == "print-config" || key.Value == "help" {
			errs = append(errs, fmt.Errorf("%s: unknown setting %q%s", at(key), key.Value, suggestion(fs, key.Value)))
			continue
		}
		if sources[f.Name] != "" {
			// The file loses here, but it must still be right: a wrong value would otherwise surface on another day.
			if err := try(f, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", at(value), f.Name, err))
			}
			continue
		}
		if err := assign(f, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", at(value), f.Name, err))
			continue
		}
		sources[f.Name] = fmt.Sprintf("file %s:%d", path, key.Line)
	}
	return errs
}

func readFile(path string) (*yaml.Node, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(data) > fileBytesMax {
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	var document, more yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil // empty
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: has more than one YAML document", path)
	}
	root := resolve(document.Content[0])
	if root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func suggestion(fs *pflag.FlagSet, key string) string {
	if name := nearest(fs, key); name != "" {
		return fmt.Sprintf(", did you mean %q?", name)
	}
	return ""
}

// assign gives a flag the value of a node: a scalar as its text, a list or mapping to flags that take several.
func assign(f *pflag.Flag, n *yaml.Node) error {
	texts, err := texts(f, n)
	if err != nil {
		return err
	}
	if many, ok := f.Value.(pflag.SliceValue); ok && n.Kind == yaml.SequenceNode {
		if err := many.Replace(texts); err != nil {
			return errors.New(reasonFor(f, strings.Join(texts, ","), err))
		}
		f.Changed = true
		return nil
	}
	for _, text := range texts {
		if err := set(f, text); err != nil {
			return errors.New(reasonFor(f, text, err))
		}
	}
	f.Changed = true
	return nil
}

// try checks a value without keeping it.
func try(f *pflag.Flag, n *yaml.Node) error {
	_, err := texts(f, n)
	return err
}

func texts(f *pflag.Flag, n *yaml.Node) ([]string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return nil, errors.New("has no value")
		}
		return []string{n.Value}, nil
	case yaml.SequenceNode:
		if !takesMany(f) {
			return nil, fmt.Errorf("takes one value, not a list")
		}
		return scalars(n.Content)
	case yaml.MappingNode:
		if !isMapping(f) {
			return nil, fmt.Errorf("takes no mapping")
		}
		words, err := scalars(n.Content)
		if err != nil {
			return nil, err
		}
		var out []string
		for i := 0; i+1 < len(words); i += 2 {
			pair, err := csvField(words[i] + "=" + words[i+1])
			if err != nil {
				return nil, err
			}
			out = append(out, pair)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("is not a value")
	}
}

// csvField quotes a pair for pflag, which splits at commas.
func csvField(text string) (string, error) {
	var b strings.Builder
	w := csv.NewWriter(&b)
	if err := w.Write([]string{text}); err != nil {
		return "", err
	}
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n"), w.Error()
}

func scalars(nodes []*yaml.Node) ([]string, error) {
	var out []string
	for _, n := range nodes {
		n = resolve(n)
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			return nil, fmt.Errorf("line %d: want plain values", n.Line)
		}
		out = append(out, n.Value)
	}
	return out, nil
}

// takesMany reports whether a flag may be given several times.
func takesMany(f *pflag.Flag) bool {
	_, slice := f.Value.(pflag.SliceValue)
	repeats, ok := f.Value.(interface{ Repeats() bool })
	return slice || isMapping(f) || ok && repeats.Repeats()
}

// isMapping reports whether a flag is one of pflag's key=value flags.
func isMapping(f *pflag.Flag) bool { return strings.HasPrefix(f.Value.Type(), "stringTo") }
