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

const (
	// tailMax is how much of an existing audit file is read when it is opened, to find where it ends and what of it is damaged.
	tailMax = 256 << 20
	// lineMax is the longest line that is read.
	lineMax = 1 << 20
)

// lineBegin is how each line begins.
var lineBegin = []byte(`{"group":`)

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

// readLine reads a line. It must be, byte by byte, what is written for its record: a flipped bit in the name of a field would hide the checksum.
func readLine(text []byte) (l auditLine, whole bool) {
	if json.Unmarshal(text, &l) != nil || l.Sum != "" && l.Sum != l.checksum() {
		return l, false
	}
	again, err := json.Marshal(l)
	return l, err == nil && bytes.Equal(again, bytes.TrimSuffix(text, []byte("\n")))
}

// written is the end of the file.
type written struct {
	group    string
	sequence uint64
}

// scan is what is in an audit file.
type scan struct {
	last    written // of the last whole line
	whole   int     // lines
	damaged int
	lost    uint64 // records of damaged lines that do not come again
	torn    bool   // the last line has no end
}

// CheckAuditFile tells why records cannot go to path, which somebody has to change. What may pass, RunAuditFile tries again.
func CheckAuditFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil
	case info.IsDir():
		return errors.New("is a directory: name a file in it")
	case !info.Mode().IsRegular():
		return errors.New("is not a file that can be read back: name another one")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	begin := make([]byte, len(lineBegin))
	n, err := io.ReadFull(file, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("cannot be read, move it away: %w", err)
	}
	if bytes.HasPrefix(lineBegin, begin[:n]) {
		return nil
	}
	if got, err := scanAudits(file); err != nil || got.whole == 0 {
		return errors.Join(errors.New("holds no audit records, and none are put behind what another program wrote: name another file, or move it away"), err)
	}
	return nil
}

// RunAuditFile appends committed audit records as JSON lines, until ctx ends. It follows the ring and remembers the last
// position in the file itself, so that a restart neither repeats nor loses a record that the ring still holds.
func (s *Server) RunAuditFile(ctx context.Context, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("no audit record is written until the file of --audit-log can be opened; let the program write there, or name another file: %w", err)
	}
	defer func() { _ = file.Close() }()
	last, err := s.openAudits(file, path)
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
	if group == "" {
		return last, nil
	}
	if group != last.group {
		last = written{group: group}
	}
	if newest <= last.sequence {
		return last, nil
	}
	var rows []*pb.Audit
	for row := range st.AuditNewestFirst(0) {
		if row.GetSequence() <= last.sequence {
			break
		}
		rows = append(rows, row)
	}
	if n := len(rows); n > 0 && last.sequence > 0 && rows[n-1].GetSequence() > last.sequence+1 {
		s.config.Log.Warn("records are missing in the audit file: the group has written more than it keeps since the file ended; the files of other replicas may have them",
			"path", file.Name(), "records", rows[n-1].GetSequence()-last.sequence-1)
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

// openAudits says what of an existing file is damaged, ends a line that a crash cut off, and returns where the file goes on. The records of what is
// damaged at its end come again.
func (s *Server) openAudits(file *os.File, path string) (written, error) {
	got, err := scanAudits(file)
	if err != nil {
		return got.last, err
	}
	if got.damaged > 0 {
		s.config.Log.Warn("lines of the audit file are damaged; records that are lost with them are in the files of other replicas, and the newest in `bigfleet get audit`",
			"path", path, "lines", got.damaged, "records_lost", got.lost)
	}
	if got.torn {
		_, err = file.WriteString("\n")
	}
	return got.last, err
}

// scanAudits reads a file to its end.
func scanAudits(file *os.File) (got scan, err error) {
	info, err := file.Stat()
	if err != nil {
		return got, err
	}
	from := max(0, info.Size()-tailMax)
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return got, err
	}
	reader, damaged := bufio.NewReaderSize(file, lineMax), 0
	for part := from > 0; ; part = false { // the first line may be a part of one
		text, err := reader.ReadSlice('\n')
		long := false
		for ; err == bufio.ErrBufferFull; long = true {
			text, err = reader.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return got, err
		}
		if l, whole := readLine(text); whole && !long && !part {
			if next := got.last.sequence + 1; damaged > 0 && got.last.group == l.Group && l.Sequence > next {
				got.lost += l.Sequence - next
			}
			got.last, got.whole, damaged = written{l.Group, l.Sequence}, got.whole+1, 0
		} else if len(bytes.TrimSpace(text)) > 0 && !part {
			got.damaged, damaged = got.damaged+1, damaged+1
		}
		if err == io.EOF {
			got.torn = len(text) > 0
			return got, nil
		}
	}
}

// deadPeerAudit is the record of a removal that no admin asked for.
func deadPeerAudit(id string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AppendAudit{AppendAudit: &pb.AppendAudit{Method: "dead-peer-removal",
		RequestJson: `{"nodeId":` + strconv.Quote(id) + `}`, Reason: "it has not answered for long"}}}
}
