package audit

import (
	"encoding/json"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// lines is the file of --audit-log. It may be on another disk than the segments. That disk may be full or gone: it costs lines, and never the decision log.
type lines struct {
	file   *os.File
	torn   bool      // it ends in a part of a line
	lost   int64     // records since the last line that was written
	at     time.Time // when the next attempt is due
	reopen atomic.Bool
}

// linesRetry is the pause after a line that could not be written.
const linesRetry = time.Second

// line appends a record to the JSON lines, or counts it as lost.
func (l *Log) line(r *core.Record) {
	x := &l.lines
	if x.reopen.Swap(false) {
		x.close()
		x.at, x.torn = time.Time{}, false
	}
	if time.Now().Before(x.at) {
		x.lost++
		return
	}
	if err := x.append(l.cfg.Lines, convert.Record(r, l.cfg.Shard)); err != nil {
		if x.lost == 0 {
			l.cfg.Log.Error("the file of --audit-log cannot be written: records are missing in it until it can", "path", l.cfg.Lines, "err", err)
		}
		x.close()
		x.lost, x.at = x.lost+1, time.Now().Add(linesRetry)
		l.cfg.OnError()
		return
	}
	if x.lost > 0 {
		l.cfg.Log.Warn("the file of --audit-log can be written again", "path", l.cfg.Lines, "records_missing", x.lost)
		x.lost = 0
	}
}

func (x *lines) append(path string, m *pb.DecisionRecord) error {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	var one json.RawMessage = raw // protojson varies its spacing on purpose; lines are compact
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	if x.file == nil {
		if x.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			x.file = nil
			return err
		}
	}
	if x.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := x.file.Write(append(text, '\n'))
	if n > 0 {
		x.torn = err != nil
	}
	return err
}

func (x *lines) close() {
	if x.file != nil {
		_ = x.file.Close()
		x.file = nil
	}
}
