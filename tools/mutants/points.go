package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
)

// point is a place of a file where a mutant differs: text stands there instead of the bytes [from, to).
type point struct {
	pkg, file, text string
	from, to        int
	name            string // the same in each run over the same tree
}

// swaps are operators that a tired author confuses.
var swaps = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD,
}

// points finds those of a file. It leaves out methods named String, whose words are no decisions.
func points(pkg, file string, text []byte) ([]point, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []point
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	add := func(what string, from, to token.Pos, instead string) {
		at := fset.Position(from)
		name := fmt.Sprintf("%s/%s:%d:%d %s", pkg, filepath.Base(file), at.Line, at.Column, what)
		out = append(out, point{pkg, file, instead, at.Offset, offset(to), name})
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return n.Name.Name != "String"
		case *ast.BinaryExpr:
			if to, ok := swaps[n.Op]; ok {
				add(n.Op.String()+" -> "+to.String(), n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to.String())
			}
		case *ast.IfStmt:
			// The condition stays, so that what it reads is still in use.
			add("if never", n.Cond.Pos(), n.Cond.End(), "false && ("+string(text[offset(n.Cond.Pos()):offset(n.Cond.End())])+")")
		case *ast.BlockStmt:
			for _, s := range n.List {
				if removable(s) {
					add("statement removed", s.Pos(), s.End(), "")
				}
			}
		}
		return true
	})
	return out, nil
}

// removable reports whether the code compiles without a statement, as a rule.
func removable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	}
	return false
}
