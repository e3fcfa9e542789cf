package contract

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The shapes of wire.md. A table's header row says what it holds.
const (
	headFiles     = "| File | Kind | Holds | Imports |"
	headServices  = "| Service | Server, port | Dialled by | Kind |"
	headRPCs      = "| RPC | request | response | kind | meaning |"
	headShortRPCs = "| RPC | kind | meaning |"
	headContract  = "| field | no. | type | meaning | hard | soft |"
	headExtension = "| message | field | no. | type | meaning | rule |"
)

var (
	fileHeading = regexp.MustCompile(`^### (\d+)\.\d+ ([a-z]+)\.proto$`)
	serviceLine = regexp.MustCompile(`^\*\*([A-Z]\w+)\*\*\. (.+)$`)
	bold        = regexp.MustCompile(`^\*\*([A-Z]\w+)\*\*$`)
	reservedRow = regexp.MustCompile("^name `(\\w+)`$")
	oneofType   = regexp.MustCompile(`^oneof (\w+): (.+)$`)
	oneofRule   = regexp.MustCompile(`^oneof \w+: required = true$`)
	enumLine    = regexp.MustCompile(`^- enum \*\*([\w.]+)\*\*\. (.+?) Values: (.+)$`)
	enumValue   = regexp.MustCompile("^`(\\w+)` = (\\d+) \\((.*)\\)\\.?$")
	celLine     = regexp.MustCompile("^- `([\\w.]+)` on `([\\w.\\[\\]]+)`: `(.+)` \"(.+)\"$")
	celRef      = regexp.MustCompile("^CEL `([\\w.]+)`$")
	quoted      = regexp.MustCompile("`([^`]+)`")
	constant    = regexp.MustCompile(`^(ID|LABEL_KEY|LABEL_VALUE|QTY)\s*= (\^.*\$)$`)
	clusterID   = regexp.MustCompile("`CLUSTER_ID` = `(\\^[^`]+\\$)`")
)

type cel struct{ on, expression, message string }

type parser struct {
	spec     *Spec
	table    string // header of the table we are in
	section  string // "14" or "15" inside the schema tables
	file     string
	message  *Message
	service  string
	services map[string]*Service // by name; the table of 2.2 gives the order
	docs     []string
	cels     map[string]cel
	uses     []celUse
}

// celUse is one mention of a CEL rule in a table, resolved when all rules are known.
type celUse struct {
	id, message, field string
}

func constants(text string) (map[string]string, error) {
	out := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if m := constant.FindStringSubmatch(line); m != nil {
			out[m[1]] = m[2]
		}
	}
	if m := clusterID.FindStringSubmatch(text); m != nil {
		out["CLUSTER_ID"] = m[1]
	}
	for _, name := range []string{"ID", "CLUSTER_ID", "QTY", "LABEL_KEY", "LABEL_VALUE"} {
		if out[name] == "" {
			return nil, fmt.Errorf("pattern %s is not defined", name)
		}
	}
	return out, nil
}

func (p *parser) line(line string) error {
	switch {
	case strings.HasPrefix(line, "#"):
		p.table, p.section, p.file, p.service = "", "", "", ""
		p.message = nil
		if m := fileHeading.FindStringSubmatch(line); m != nil {
			p.section, p.file = m[1], m[2]
		}
		return nil
	case strings.HasPrefix(line, "|---"):
		return nil
	case strings.HasPrefix(line, "|"):
		return p.row(line)
	}
	p.table, p.message = "", nil
	if p.section != "" {
		switch {
		case strings.HasPrefix(line, "- enum "):
			return p.enum(line)
		case strings.HasPrefix(line, "- `"):
			return p.cel(line)
		case strings.HasPrefix(line, "Empty messages: "):
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				p.addMessage(Message{Name: m[1]})
			}
			p.message = nil
		}
		return nil
	}
	if m := serviceLine.FindStringSubmatch(line); m != nil {
		p.service = m[1]
		p.services[p.service] = &Service{Name: m[1], Doc: m[2]}
	}
	return nil
}

func (p *parser) row(line string) error {
	if p.table == "" {
		p.table = line
		return nil
	}
	cells := split(line)
	if want := strings.Count(p.table, "|") - 1; len(cells) != want {
		return fmt.Errorf("%d cells under a header of %d", len(cells), want)
	}
	switch p.table {
	case headFiles:
		return p.fileRow(cells)
	case headServices:
		p.docs = append(p.docs, cells[0])
		p.spec.Services = append(p.spec.Services, Service{Name: cells[0], Contract: strings.Contains(cells[3], "contract")})
	case headRPCs:
		return p.rpc(RPC{Name: cells[0], Request: cells[1], Response: cells[2], Meaning: cells[4]}, cells[3])
	case headShortRPCs:
		return p.rpc(RPC{Name: cells[0], Request: cells[0] + "Request", Response: cells[0] + "Response", Meaning: cells[2]}, cells[1])
	case headContract:
		return p.contractRow(cells)
	case headExtension:
		return p.extensionRow(cells)
	default:
		if p.section != "" {
			return errors.New("unknown table in a schema section")
		}
	}
	return nil
}

func split(line string) []string {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func (p *parser) fileRow(cells []string) error {
	f := File{Name: cells[0], Kind: cells[1]}
	if cells[3] != "none" {
		for _, name := range strings.Split(cells[3], ", ") {
			if name = strings.Trim(name, "`"); name == "validate" {
				f.Imports = append(f.Imports, "buf/validate/validate.proto")
			} else {
				f.Imports = append(f.Imports, protoPath(name))
			}
		}
	}
	p.spec.Files = append(p.spec.Files, f)
	return nil
}

func protoPath(file string) string { return "bigfleet/v1alpha1/" + file + ".proto" }

func (p *parser) rpc(r RPC, kind string) error {
	if p.service == "" {
		return errors.New("an RPC outside a service")
	}
	kind, r.Read = strings.TrimSuffix(kind, ", read"), strings.HasSuffix(kind, ", read")
	switch kind {
	case "unary":
	case "server stream":
		r.ServerStream = true
	case "bidi stream":
		r.ServerStream, r.ClientStream = true, true
	default:
		return fmt.Errorf("unknown kind %q", kind)
	}
	s := p.services[p.service]
	s.RPCs = append(s.RPCs, r)
	return nil
}

func (p *parser) addMessage(m Message) {
	m.File, m.Contract = p.file, p.section == "14"
	p.spec.Messages = append(p.spec.Messages, m)
	p.message = &p.spec.Messages[len(p.spec.Messages)-1]
}

func (p *parser) contractRow(cells []string) error {
	if m := bold.FindStringSubmatch(cells[0]); m != nil {
		p.addMessage(Message{Name: m[1], Doc: cells[3]})
		return p.messageRules(cells[4])
	}
	if p.message == nil {
		return errors.New("a field before its message")
	}
	if cells[0] == "*reserved*" {
		n, err := strconv.ParseInt(cells[1], 10, 32)
		m := reservedRow.FindStringSubmatch(cells[3])
		if err != nil || m == nil {
			return errors.New("a reserved row needs a number and a name")
		}
		p.message.Reserved = append(p.message.Reserved, Reserved{Number: int32(n), Name: m[1]})
		return nil
	}
	return p.field(cells[0], cells[1], cells[2], cells[3], cells[4], cells[5])
}

func (p *parser) extensionRow(cells []string) error {
	if cells[0] != "" {
		m := bold.FindStringSubmatch(cells[0])
		if m == nil {
			return errors.New("a message name is bold")
		}
		p.addMessage(Message{Name: m[1]})
	}
	if p.message == nil {
		return errors.New("a field before its message")
	}
	rules := cells[5]
	if before, after, found := strings.Cut(rules, "message: "); found {
		rules = strings.TrimSuffix(strings.TrimSpace(before), ";")
		if err := p.messageRules(after); err != nil {
			return err
		}
	}
	return p.field(cells[1], cells[2], cells[3], cells[4], rules, "")
}

func (p *parser) field(name, number, typ, meaning, rules, soft string) error {
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return fmt.Errorf("field number %q: %w", number, err)
	}
	f := Field{Name: name, Number: int32(n), Type: typ, Meaning: meaning, Soft: soft}
	if m := oneofType.FindStringSubmatch(typ); m != nil {
		f.Oneof, f.Type = m[1], m[2]
	}
	for _, label := range []string{"repeated", "optional"} {
		if rest, ok := strings.CutPrefix(f.Type, label+" "); ok {
			f.Label, f.Type = label, rest
		}
	}
	if f.Rules, err = p.fieldRules(rules, name); err != nil {
		return err
	}
	p.message.Fields = append(p.message.Fields, f)
	return nil
}

// messageRules reads "CEL `a`; CEL `b`" or "oneof x: required = true".
func (p *parser) messageRules(cell string) error {
	for _, rule := range strings.Split(cell, "; ") {
		switch m := celRef.FindStringSubmatch(rule); {
		case rule == "":
		case m != nil:
			p.uses = append(p.uses, celUse{id: m[1], message: p.message.Name})
		case oneofRule.MatchString(rule):
			p.message.Rules = append(p.message.Rules, rule)
		default:
			return fmt.Errorf("message rule %q is not understood", rule)
		}
	}
	return nil
}

// fieldRules reads "`a.b = c`, `d = e`" and "CEL `id`". Pattern names are replaced by the patterns.
func (p *parser) fieldRules(cell, field string) ([]string, error) {
	if m := celRef.FindStringSubmatch(cell); m != nil {
		p.uses = append(p.uses, celUse{id: m[1], message: p.message.Name, field: field})
		return nil, nil
	}
	var rules []string
	rest := cell
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		rest = strings.Replace(rest, m[0], "", 1)
		path, value, ok := strings.Cut(m[1], " = ")
		if !ok {
			return nil, fmt.Errorf("rule %q is not understood", m[1])
		}
		if strings.HasSuffix(path, ".pattern") {
			if p.spec.Constants[value] == "" {
				return nil, fmt.Errorf("unknown pattern %q", value)
			}
			value = p.spec.Constants[value]
		}
		rules = append(rules, path+" = "+value)
	}
	if strings.Trim(rest, ", ") != "" {
		return nil, fmt.Errorf("rules %q are not understood", cell)
	}
	slices.Sort(rules)
	return rules, nil
}

func (p *parser) enum(line string) error {
	m := enumLine.FindStringSubmatch(line)
	if m == nil {
		return errors.New("an enum line is not understood")
	}
	e := Enum{Name: m[1], Doc: m[2], File: p.file, Contract: p.section == "14"}
	for i, part := range strings.Split(m[3], "; `") {
		if i > 0 {
			part = "`" + part
		}
		v := enumValue.FindStringSubmatch(part)
		if v == nil {
			return fmt.Errorf("enum value %q is not understood", part)
		}
		n, err := strconv.ParseInt(v[2], 10, 32)
		if err != nil {
			return err
		}
		e.Values = append(e.Values, Value{Name: v[1], Number: int32(n), Meaning: v[3]})
	}
	p.spec.Enums = append(p.spec.Enums, e)
	return nil
}

func (p *parser) cel(line string) error {
	m := celLine.FindStringSubmatch(line)
	if m == nil {
		return errors.New("a CEL rule is not understood")
	}
	p.cels[m[1]] = cel{on: m[2], expression: m[3], message: m[4]}
	return nil
}

// finish resolves what needs the whole text: services in the order of their table, CEL rules where they are used.
func (p *parser) finish() error {
	for i := range p.spec.Services {
		s := &p.spec.Services[i]
		full := p.services[s.Name]
		if full == nil || len(full.RPCs) == 0 {
			return fmt.Errorf("service %s has no RPC table", s.Name)
		}
		s.Doc, s.RPCs = full.Doc, full.RPCs
		delete(p.services, s.Name)
	}
	for name, s := range p.services {
		if len(s.RPCs) > 0 {
			return fmt.Errorf("service %s is not in the table of services", name)
		}
	}
	used := map[string]bool{}
	for _, u := range p.uses {
		c, ok := p.cels[u.id]
		on := u.message
		if u.field != "" {
			on += "." + u.field + "[]"
		}
		if !ok || c.on != on {
			return fmt.Errorf("CEL rule %s of %s is not defined for it", u.id, on)
		}
		used[u.id] = true
		m := p.spec.Message(u.message)
		m.Rules = append(m.Rules, celRule(u.id, on, c.expression, c.message))
	}
	for id := range p.cels {
		if !used[id] {
			return fmt.Errorf("CEL rule %s is used by no table", id)
		}
	}
	return nil
}

func celRule(id, on, expression, message string) string {
	return fmt.Sprintf("cel %s on %s: %s %q", id, on, expression, message)
}
