package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// auditLine is one line of the audit file: the record as its proto JSON, behind its position in the ring.
type auditLine struct {
	Sequence uint64          `json:"sequence"`
	Record   json.RawMessage `json:"record"`
}

// RunAuditFile appends committed audit records as JSON lines, until ctx ends. It follows the ring and remembers the last
// position in the file itself, so that a restart neither repeats nor loses a record that the ring still holds.
func (s *Server) RunAuditFile(ctx context.Context, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("audit file: %w", err)
	}
	defer func() { _ = file.Close() }()
	last, err := lastSequence(file)
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

func (s *Server) appendAudits(file *os.File, last uint64) (uint64, error) {
	st := s.node.State()
	newest := st.Meta().GetAuditSequence()
	if newest < last {
		last = 0 // another group, or a restore of an older state
	}
	if newest == last {
		return last, nil
	}
	var rows []*pb.Audit
	for row := range st.AuditNewestFirst(0) {
		if row.GetSequence() <= last {
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
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			return last, err
		}
		line, err := json.Marshal(auditLine{Sequence: row.GetSequence(), Record: compact.Bytes()})
		if err != nil {
			return last, err
		}
		out.Write(append(line, '\n'))
	}
	if _, err := file.Write(out.Bytes()); err != nil {
		return last, err
	}
	return newest, nil
}

// lastSequence reads the position of the last whole line. A torn one, after a crash, is ended.
func lastSequence(file *os.File) (uint64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	from := max(0, info.Size()-tailMax)
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return 0, err
	}
	reader := bufio.NewReader(file)
	var last uint64
	for {
		line, err := reader.ReadBytes('\n')
		var l auditLine
		if err == nil && json.Unmarshal(line, &l) == nil {
			last = l.Sequence
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

// deadPeerAudit is the record of a removal that nobody asked for.
func deadPeerAudit(id string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AppendAudit{AppendAudit: &pb.AppendAudit{Method: "dead-peer-removal",
		RequestJson: `{"nodeId":` + strconv.Quote(id) + `}`, Reason: "it has not answered for long"}}}
}
