package archive

import (
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
)

// Tables names the tables of an archive, in their order.
func (a *Archive) Tables() []string { return a.state.TableNames() }

// WriteRows prints the rows of one table, or of all with "", one JSON object in a line (COORD-15.5).
func (a *Archive) WriteRows(to io.Writer, table string) error {
	for _, name := range a.Tables() {
		if table != "" && name != table {
			continue
		}
		for row := range a.state.Rows(name) {
			text, err := protojson.Marshal(row)
			if err != nil {
				return err
			}
			if _, err := to.Write(slices.Concat([]byte(`{"table":"`+name+`","row":`), text, []byte("}\n"))); err != nil {
				return err
			}
		}
	}
	return nil
}
