package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// tailMax is how much of an existing audit file is read to find where it ends.
const tailMax = 1 << 20

// auditLine is one line of the audit file: the record as its proto JSON, behind its position in the ring of its group.
type auditLine struct {
	Group    string          `json:"group"`
	Sequence uint64          `json:"sequence"`
	Record   json.RawMessage `json:"record"`
	Sum      string          `json:"sum,omitempty"` // of the others; lines of earlier builds have none
}

// newAuditLine gives the record the form in which Marshal leaves it as it is.
func newAuditLine(group string, sequence uint64, record []byte) (auditLine, error) {
	var compact, escaped bytes.Buffer
	if err := json.Compact(&compact, record); err != nil {
		return auditLine{}, err
	}
	json.HTMLEscape(&escaped, compact.Bytes())
	l := auditLine{Group: group, Sequence: sequence, Record: escaped.Bytes()}
	l.Sum = l.checksum()
	return l, nil
}

// checksum tells a line as it was written from a damaged one: a sequence that reads too high would skip the records up to it.
func (l auditLine) checksum() string {
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(fmt.Appendf(nil, "%s %d %s", l.Group, l.Sequence, l.Record), crc32.MakeTable(crc32.Castagnoli)))
}

func (l auditLine) whole() bool { return l.Sum == "" || l.Sum == l.checksum() }

// written is the end of the file.
type written struct {
	group    string
	sequence uint64
}

// RunAuditFile appends committed audit records as JSON lines, until ctx ends. It follows the ring and remembers the last
// position in the file itself, so that a restart neither repeats nor loses a record that the ring still holds.
func (s *Server) RunAuditFile(ctx context.Context, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("audit file: %w", err)
	}
	defer func() { _ = file.Close() }()
	last, err := lastWritten(file)
	if err != nil {
		return fmt.Errorf("audit file %s: %w", path, err)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if last, err = s.appendAudits(file, last); err != nil {
			return fmt.Errorf("audit file %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_, err := s.appendAudits(file, last)
			return errors.Join(err, ctx.Err())
		case <-tick.C:
		}
	}
}

// appendAudits writes what came since last. After a restart the state is behind the file until the log is replayed; a
// group that was restored from an older state continues in the file with its own numbers.
func (s *Server) appendAudits(file *os.File, last written) (written, error) {
	st := s.node.State()
	group, newest := st.Meta().GetClusterUuid(), st.Meta().GetAuditSequence()
	if group != last.group && newest < last.sequence && group != "" {
		last.sequence = 0
	}
	if group == "" || newest <= last.sequence {
		return last, nil
	}
	var rows []*pb.Audit
	for row := range st.AuditNewestFirst(0) {
		if row.GetSequence() <= last.sequence {
			break
		}
		rows = append(rows, row)
	}
	var out bytes.Buffer
	for _, row := range slices.Backward(rows) {
		text, err := protojson.Marshal(row.GetRecord())
		if err != nil {
			return last, err
		}
		l, err := newAuditLine(group, row.GetSequence(), text)
		if err != nil {
			return last, err
		}
		line, err := json.Marshal(l)
		if err != nil {
			return last, err
		}
		out.Write(append(line, '\n'))
	}
	if _, err := file.Write(out.Bytes()); err != nil {
		return last, err
	}
	return written{group, newest}, nil
}

// lastWritten reads the position of the last whole line. A torn one, after a crash, is ended. Behind a damaged one, records may come twice and none is lost.
func lastWritten(file *os.File) (last written, err error) {
	info, err := file.Stat()
	if err != nil {
		return last, err
	}
	from := max(0, info.Size()-tailMax)
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return last, err
	}
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		var l auditLine
		if err == nil && json.Unmarshal(line, &l) == nil && l.whole() {
			last = written{l.Group, l.Sequence}
		}
		if err == io.EOF {
			if len(line) > 0 {
				_, err = file.WriteString("\n")
				return last, err
			}
			return last, nil
		}
		if err != nil {
			return last, err
		}
	}
}

// deadPeerAudit is the record of a removal that no admin asked for.
func deadPeerAudit(id string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AppendAudit{AppendAudit: &pb.AppendAudit{Method: "dead-peer-removal",
		RequestJson: `{"nodeId":` + strconv.Quote(id) + `}`, Reason: "it has not answered for long"}}}
}
