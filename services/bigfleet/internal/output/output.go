// Package output writes answers in the formats of OPS-4.2.
//
// A verb hands over protocol messages and, for people, rows. JSON and YAML are the proto JSON of the messages, complete and
// stable; tables are for reading and may change. Start at Printer.
package output

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// Format is a value of -o.
type Format string

// The formats.
const (
	Table Format = "table"
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
	JSONL Format = "jsonl"
	Name  Format = "name"
	CSV   Format = "csv"
)

// Formats lists them for help and completion.
func Formats() []string {
	return []string{string(Table), string(Wide), string(JSON), string(YAML), string(JSONL), string(Name), string(CSV)}
}

// Parse checks a value of -o.
func Parse(s string) (Format, error) {
	if !slices.Contains(Formats(), s) {
		return "", exit.Usagef("-o %s is not a format: use one of %s", s, strings.Join(Formats(), ", "))
	}
	return Format(s), nil
}

// ForPeople says whether rows and sentences are wanted instead of messages.
func (f Format) ForPeople() bool { return f == Table || f == Wide }

// Column is one column of a table. Wide columns show with -o wide only; spare ones give way on a narrow screen, and folded ones go below
// their row there.
type Column struct {
	Head              string
	Wide, Spare, Fold bool
}

// List is an answer of many things.
type List struct {
	Columns []Column
	Rows    [][]string // one cell a column; a row of one cell is a line across the table
	Names   []string   // one a row, for -o name
	Items   []proto.Message
	Objects []any            // in place of Items, where rows are put together here and are no message
	Shards  []string         // one an item: the shard that reported it; nil where no shard did
	Also    []map[string]any // one an item: what the command knows of it besides; nil for nothing
	Say     Words            // of the decision records in the items
}

// Words says a decision record in a sentence. Programs read it as its field "sentence", beside the codes.
type Words func(*bigfleetv1alpha1.DecisionRecord) string

// Write prints a list.
func (f Format) Write(w io.Writer, l List) error {
	if things := len(l.Items) + len(l.Objects); things > 0 && (f == Name && l.Names == nil || f == CSV && l.Columns == nil) {
		return errOneAnswer
	}
	switch f {
	case Name:
		for _, n := range l.Names {
			if n == "" { // a row that is no thing, such as a total
				continue
			}
			if _, err := fmt.Fprintln(w, Text(n)); err != nil {
				return err
			}
		}
		return nil
	case CSV:
		return writeCSV(w, l)
	case JSONL:
		items, err := l.data()
		if err != nil {
			return err
		}
		for _, o := range items {
			if err := json.NewEncoder(w).Encode(o); err != nil {
				return err
			}
		}
		return nil
	case JSON, YAML:
		items, err := l.data()
		if err != nil {
			return err
		}
		return f.raw(w, map[string]any{"items": items})
	}
	return writeTable(w, l, f == Wide)
}

// data is what programs read of a list.
func (l List) data() ([]any, error) {
	out := make([]any, 0, len(l.Items)+len(l.Objects))
	for i, m := range l.Items {
		shard := ""
		if i < len(l.Shards) {
			shard = l.Shards[i]
		}
		o, err := object(m, shard, l.Say)
		if err != nil {
			return nil, err
		}
		if i < len(l.Also) {
			maps.Copy(o, l.Also[i])
		}
		out = append(out, o)
	}
	return append(out, l.Objects...), nil
}

// Next prints one message of a stream: an object of its own, with YAML a document.
func (f Format) Next(w io.Writer, m proto.Message, shard string, say Words) error {
	if f == Name || f == CSV {
		return errOneAnswer
	}
	o, err := object(m, shard, say)
	if err != nil {
		return err
	}
	switch f {
	case YAML:
		if _, err := fmt.Fprintln(w, "---"); err != nil {
			return err
		}
	case JSONL:
		return json.NewEncoder(w).Encode(o)
	}
	return f.raw(w, o)
}

// Message prints an answer of one message as data, in the shape of every other answer. A verb with rows calls Write.
func (f Format) Message(w io.Writer, m proto.Message) error {
	return f.only(w, List{Items: []proto.Message{m}})
}

// Value prints an answer of one thing that is no message.
func (f Format) Value(w io.Writer, v any) error { return f.only(w, List{Objects: []any{v}}) }

func (f Format) only(w io.Writer, l List) error {
	if f == Name || f == CSV {
		return errOneAnswer
	}
	if f.ForPeople() {
		f = JSON
	}
	return f.Write(w, l)
}

func (f Format) raw(w io.Writer, v any) error {
	if f == YAML {
		out, err := yaml.Marshal(v)
		if err == nil {
			_, err = w.Write(out)
		}
		return err
	}
	out, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", out)
	}
	return err
}

// object is a message as programs read it: its proto JSON, each time in RFC 3339 beside its nanoseconds, the sentence of each decision
// record, and the shard that reported it.
func object(m proto.Message, shard string, say Words) (map[string]any, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var v map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	addTimes(v)
	if say != nil {
		addSentences(v, m.ProtoReflect(), say)
	}
	if id, _ := v["shardId"].(string); id != "" {
		shard = id
	}
	if _, taken := v["shard"]; !taken && shard != "" {
		v["shard"] = shard
	}
	return v, nil
}

// timeSuffixes end the names of fields that hold Unix nanoseconds.
var timeSuffixes = []string{"UnixNanos", "UnixNs"}

// addTimes adds stateSince to stateSinceUnixNanos, and so on.
func addTimes(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			addTimes(e)
		}
	case map[string]any:
		for name, e := range v {
			addTimes(e)
			for _, suffix := range timeSuffixes {
				short, of := strings.CutSuffix(name, suffix)
				text, isText := e.(string)
				if _, taken := v[short]; !of || taken || short == "" || !isText {
					continue
				}
				if nanos, err := strconv.ParseInt(text, 10, 64); err == nil && nanos != 0 {
					v[short] = Time(nanos)
				}
			}
		}
	}
}

// addSentences adds them to the decision records in a message, of which v is the JSON.
func addSentences(v any, m protoreflect.Message, say Words) {
	fields, ok := v.(map[string]any)
	if !ok {
		return
	}
	if r, ok := m.Interface().(*bigfleetv1alpha1.DecisionRecord); ok {
		if said := say(r); said != "" {
			fields["sentence"] = said
		}
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, of protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind || f.IsMap():
		case f.IsList():
			rows, _ := fields[f.JSONName()].([]any)
			for i, row := range rows {
				addSentences(row, of.List().Get(i).Message(), say)
			}
		default:
			addSentences(fields[f.JSONName()], of.Message(), say)
		}
		return true
	})
}

// money is an amount as tables print it.
var money = regexp.MustCompile(`^\$([0-9.]+)(?:/h)?$`)

// plain is a cell as a spreadsheet can count with it: dollars are a number, a duration is in seconds, and nothing is empty.
func plain(cell string) string {
	if cell == Never {
		return ""
	}
	if sum, ok := seconds(cell); ok {
		return strconv.FormatFloat(sum, 'f', -1, 64)
	}
	return money.ReplaceAllString(Text(cell), "$1")
}

// writeCSV prints every column, for spreadsheets.
func writeCSV(w io.Writer, l List) error {
	out, row := csv.NewWriter(w), make([]string, len(l.Columns))
	for i, c := range l.Columns {
		row[i] = c.Head
	}
	if err := out.Write(row); err != nil {
		return err
	}
	for _, cells := range l.Rows {
		for i, cell := range cells {
			row[i] = plain(cell)
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// Never stands for "has not happened".
const Never = "—"

// AtLeast stands before an age that may be higher.
const AtLeast = "≥"

// Time is a Unix-nanosecond time in RFC 3339 UTC.
func Time(nanos int64) string {
	if nanos == 0 {
		return Never
	}
	return time.Unix(0, nanos).UTC().Format(time.RFC3339)
}

// End is when something ends that a person may have left open.
func End(nanos int64) string {
	if nanos == 0 {
		return "it is resumed"
	}
	return Time(nanos)
}

// Age is how long ago a Unix-nanosecond time was, in the largest two units.
func Age(now time.Time, nanos int64) string {
	if nanos == 0 {
		return Never
	}
	return Span(now.Sub(time.Unix(0, nanos)))
}

// Span words a duration in its largest two units.
func Span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Enum is the short form of an enum value: MACHINE_STATE_IDLE is idle.
func Enum(prefix, name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
}

// Dollars words an hourly price: in cents, and finer where cents would be off by more than half a percent.
func Dollars(perHour float64) string {
	for digits := 2; digits < 6; digits += 2 {
		unit := math.Pow10(-digits)
		if math.Abs(math.Round(perHour/unit)*unit-perHour) <= math.Abs(perHour)/200 {
			return fmt.Sprintf("$%.*f/h", digits, perHour)
		}
	}
	return fmt.Sprintf("$%.6f/h", perHour)
}

// Count words a number of things: 1 machine, 2 machines.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Are is the noun and its verb after a number: "need is", "needs are".
func Are(n int, what string) string {
	if n == 1 {
		return what + " is"
	}
	return what + "s are"
}

// Dash is s, or a dash for nothing.
func Dash(s string) string {
	if s == "" {
		return Never
	}
	return s
}

// Vector words a resource vector with cpu and memory first.
func Vector(m map[string]string) string {
	var first, rest []string
	for k, v := range m {
		if k != "cpu" && k != "memory" {
			rest = append(rest, k+"="+v)
		}
	}
	slices.Sort(rest)
	for _, k := range []string{"cpu", "memory"} {
		if v, ok := m[k]; ok {
			first = append(first, k+"="+v)
		}
	}
	return strings.Join(append(first, rest...), " ")
}

// errOneAnswer says that there is nothing to name.
var errOneAnswer = exit.Usagef("-o name and -o csv are for lists, and this is a single answer: use table, json, yaml or jsonl")
