package bootstrap

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

// unknownNames finds fields of the machine's data that a template names and that do not exist, so that a mistyped one is an error at the
// start, where an update stops, and not at the first machine. It looks where dot is the machine: not inside range and with,
// and not in templates that are called with something else; what it does not see is an error when it is rendered.
func unknownNames(tree *parse.Tree) error {
	if tree == nil || tree.Root == nil {
		return nil
	}
	data := reflect.TypeFor[*Data]()
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(data.Elem()) {
		known[f.Name] = f.IsExported()
	}
	for i := range data.NumMethod() {
		known[data.Method(i).Name] = true
	}
	wrong := map[string]bool{}
	see := func(name string) {
		if !known[name] {
			wrong["."+name] = true
		}
	}
	var walk func(n parse.Node, machine bool)
	list := func(l *parse.ListNode, machine bool) {
		if l != nil {
			for _, n := range l.Nodes {
				walk(n, machine)
			}
		}
	}
	branch := func(b *parse.BranchNode, machine, inside bool) {
		walk(b.Pipe, machine)
		list(b.List, inside)
		list(b.ElseList, machine)
	}
	walk = func(n parse.Node, machine bool) {
		switch n := n.(type) {
		case *parse.FieldNode:
			if machine {
				see(n.Ident[0])
			}
		case *parse.VariableNode:
			if n.Ident[0] == "$" && len(n.Ident) > 1 {
				see(n.Ident[1])
			}
		case *parse.ChainNode:
			walk(n.Node, machine)
		case *parse.PipeNode:
			for _, c := range n.Cmds {
				for _, a := range c.Args {
					walk(a, machine)
				}
			}
		case *parse.ActionNode:
			walk(n.Pipe, machine)
		case *parse.TemplateNode:
			if n.Pipe != nil {
				walk(n.Pipe, machine)
			}
		case *parse.IfNode:
			branch(&n.BranchNode, machine, machine)
		case *parse.WithNode:
			branch(&n.BranchNode, machine, false)
		case *parse.RangeNode:
			branch(&n.BranchNode, machine, false)
		}
	}
	list(tree.Root, true)
	if len(wrong) == 0 {
		return nil
	}
	maps.DeleteFunc(known, func(_ string, exported bool) bool { return !exported })
	return fmt.Errorf("%s does not exist; a machine has .%s", strings.Join(slices.Sorted(maps.Keys(wrong)), ", "), strings.Join(slices.Sorted(maps.Keys(known)), ", ."))
}
