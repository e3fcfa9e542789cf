package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Package is the proto package of the contract (WIRE-1.1).
const Package = "bigfleet.v1alpha1"

// ExtensionStart is the first number of our own fields in contract messages (WIRE-1.3).
const ExtensionStart = 1000

// Spec is the schema as docs/spec/wire.md states it.
type Spec struct {
	Files     []File    // section 2.1
	Services  []Service // section 2.2 and the RPC tables of sections 6 to 9
	Messages  []Message // sections 14 and 15, in order
	Enums     []Enum
	Constants map[string]string // patterns by the name the tables use: ID, CLUSTER_ID, QTY, LABEL_KEY, LABEL_VALUE
}

// File is one row of the file table.
type File struct {
	Name    string // without directory and ending
	Kind    string // "contract", "extension", "contract + extension"
	Imports []string
}

// Message is one message of section 14 or 15.
type Message struct {
	Name, File string
	Contract   bool   // section 14
	Doc        string // the meaning column of its head row; empty in section 15
	Rules      []string
	Fields     []Field
	Reserved   []Reserved
}

// Reserved is a number, with its name, that must never come back.
type Reserved struct {
	Number int32
	Name   string
}

// Field is one field row.
type Field struct {
	Name    string
	Number  int32
	Type    string // as written: "string", "map<string,string>", "Machine", "Outcome"
	Label   string // "", "repeated" or "optional"
	Oneof   string
	Meaning string
	Soft    string
	Rules   []string
}

// Enum is one enum, nested ones with the name of their message before the dot.
type Enum struct {
	Name, File string
	Contract   bool
	Doc        string
	Values     []Value
}

// Value is one enum value.
type Value struct {
	Name    string
	Number  int32
	Meaning string
}

// Service is one service with its RPCs.
type Service struct {
	Name, Doc string
	Contract  bool // served as contract, at least in part
	RPCs      []RPC
}

// RPC is one method. Read stands for idempotency_level = NO_SIDE_EFFECTS (WIRE-4.8).
type RPC struct {
	Name, Request, Response    string
	ClientStream, ServerStream bool
	Read                       bool
	Meaning                    string
}

// ReadSpec reads wire.md of the repository at root.
func ReadSpec(root string) (*Spec, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "spec", "wire.md"))
	if err != nil {
		return nil, err
	}
	return ParseSpec(string(text))
}

// ParseSpec reads the tables of the text of wire.md. It is strict: a row it does not understand is an error, never skipped.
func ParseSpec(text string) (*Spec, error) {
	p := &parser{spec: &Spec{}, services: map[string]*Service{}, cels: map[string]cel{}}
	var err error
	if p.spec.Constants, err = constants(text); err != nil {
		return nil, err
	}
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("wire.md:%d: %w\n\t%s", i+1, err, line)
		}
	}
	if err := p.finish(); err != nil {
		return nil, fmt.Errorf("wire.md: %w", err)
	}
	return p.spec, nil
}

// Message returns the message with this name, or nil.
func (s *Spec) Message(name string) *Message {
	for i := range s.Messages {
		if s.Messages[i].Name == name {
			return &s.Messages[i]
		}
	}
	return nil
}

// Enum returns the enum with this name ("Owner.Name" when nested), or nil.
func (s *Spec) Enum(name string) *Enum {
	for i := range s.Enums {
		if s.Enums[i].Name == name {
			return &s.Enums[i]
		}
	}
	return nil
}

// Service returns the service with this name, or nil.
func (s *Spec) Service(name string) *Service {
	for i := range s.Services {
		if s.Services[i].Name == name {
			return &s.Services[i]
		}
	}
	return nil
}
