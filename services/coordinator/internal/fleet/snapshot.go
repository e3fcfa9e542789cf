package fleet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"
)

// A snapshot is: the magic, a header record, for each table of the header its rows as records, and the CRC-32C of all
// bytes before it (COORD-5.4). A record is its length as uvarint and its bytes. Tables and fields that a newer minor
// format brought are skipped.
const (
	snapshotMagic  = "BIGFLEET-COORDINATOR-STATE\n"
	snapshotFormat = 1
	// recordMax bounds one row, for writing and for reading. A row is not larger than the log entries that made it, which
	// replica.ProposalBytesMax bounds; earlier builds had no such bound.
	recordMax = 512 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// WriteSnapshot writes the whole state.
func (s *State) WriteSnapshot(to io.Writer) error {
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), 256<<10)
	header := &pb.SnapshotHeader{Format: snapshotFormat, Index: s.index, Tables: []*pb.TableHeader{
		{Name: "meta", Rows: 1}, {Name: "policy", Rows: 1}}}
	tables := s.stored()
	for _, t := range tables {
		header.Tables = append(header.Tables, &pb.TableHeader{Name: t.name, Rows: uint64(t.len)})
	}
	_, _ = w.WriteString(snapshotMagic) // bufio keeps its first error for Flush
	var buf []byte
	put := func(m proto.Message) (err error) {
		if buf, err = (proto.MarshalOptions{Deterministic: true}).MarshalAppend(buf[:0], m); err != nil {
			return err
		}
		if len(buf) > recordMax {
			return fmt.Errorf("a row of %d bytes is above the limit of %d", len(buf), recordMax)
		}
		_, _ = w.Write(binary.AppendUvarint(nil, uint64(len(buf))))
		_, err = w.Write(buf)
		return err
	}
	for _, m := range []proto.Message{header, s.Meta(), &pb.Policy{Policy: s.Policy()}} {
		if err := put(m); err != nil {
			return err
		}
	}
	for _, t := range tables {
		for row := range t.rows {
			if err := put(row); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// ReadSnapshot reads a whole state and checks it: the CRC, the counts, every rule of Check. It returns no state that
// violates one (COORD-5.6).
func ReadSnapshot(from io.Reader) (*State, error) {
	r := &summing{r: bufio.NewReaderSize(from, 256<<10), sum: crc32.New(castagnoli)}
	magic := make([]byte, len(snapshotMagic))
	if err := r.full(magic); err != nil || string(magic) != snapshotMagic {
		return nil, errors.New("this is not a coordinator snapshot: the magic is missing")
	}
	header := &pb.SnapshotHeader{}
	if err := r.record(header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if header.GetFormat() != snapshotFormat {
		return nil, fmt.Errorf("the snapshot has format %d and this binary reads format %d", header.GetFormat(), snapshotFormat)
	}
	s := &State{index: header.GetIndex()}
	for _, t := range header.GetTables() {
		for i := range t.GetRows() {
			if err := s.readRow(r, t.GetName()); err != nil {
				return nil, fmt.Errorf("table %s, row %d: %w", t.GetName(), i, err)
			}
		}
	}
	want := r.sum.Sum32()
	tail := make([]byte, 4)
	if _, err := io.ReadFull(r.r, tail); err != nil {
		return nil, fmt.Errorf("checksum: %w", err)
	}
	if got := binary.BigEndian.Uint32(tail); got != want {
		return nil, fmt.Errorf("the checksum is %08x, the content has %08x: the snapshot is damaged", got, want)
	}
	if _, err := r.r.ReadByte(); err != io.EOF {
		return nil, errors.New("bytes follow the end of the snapshot")
	}
	return s, s.Check()
}

// readRow reads one row into its table and its indexes.
func (s *State) readRow(r *summing, name string) error {
	switch name {
	case "meta":
		s.meta = &pb.Meta{}
		return r.record(s.meta)
	case "policy":
		row := &pb.Policy{}
		err := r.record(row)
		s.policy = row.GetPolicy()
		return err
	case "peers":
		return readInto(r, &s.peers, &pb.Peer{}, (*pb.Peer).GetNodeId, nil)
	case "shards":
		return readInto(r, &s.shards, &pb.Shard{}, (*pb.Shard).GetShardId, s.indexShard)
	case "clusters":
		return readInto(r, &s.clusters, &pb.Cluster{}, (*pb.Cluster).GetClusterId, s.indexCluster)
	case "domains":
		return readInto(r, &s.domains, &pb.Domain{}, domainKey, s.indexDomain)
	case "providers":
		return readInto(r, &s.providers, &pb.Provider{}, (*pb.Provider).GetName, s.indexProvider)
	case "quotas":
		return readInto(r, &s.quotas, &pb.Quota{}, quotaKey, nil)
	case "exceptions":
		return readInto(r, &s.exceptions, &pb.Exception{}, exceptionKey, s.indexException)
	case "moves":
		return readInto(r, &s.moves, &pb.Move{}, (*pb.Move).GetMoveId, s.indexMove)
	case "audit":
		return readInto(r, &s.audit, &pb.Audit{}, func(a *pb.Audit) string { return auditKey(a.GetSequence()) }, nil)
	default:
		_, err := r.bytes() // a table of a newer minor format
		return err
	}
}

func readInto[T any, P rowOf[T]](r *summing, t *hashedTable[T, P], row P, key func(P) string, index func(P)) error {
	if err := r.record(row); err != nil {
		return err
	}
	k := key(row)
	if k == "" || t.get(k) != nil {
		return fmt.Errorf("the row has no key, or one that another row has")
	}
	t.put(k, (*T)(row))
	if index != nil {
		index(row)
	}
	return nil
}

// summing reads and sums.
type summing struct {
	r   *bufio.Reader
	sum hash.Hash32
	buf []byte
}

func (r *summing) full(b []byte) error {
	if _, err := io.ReadFull(r.r, b); err != nil {
		return err
	}
	r.sum.Write(b)
	return nil
}

func (r *summing) ReadByte() (byte, error) {
	b, err := r.r.ReadByte()
	if err == nil {
		r.sum.Write([]byte{b})
	}
	return b, err
}

func (r *summing) bytes() ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, fmt.Errorf("the snapshot ends early: %w", err)
	}
	if n > recordMax {
		return nil, fmt.Errorf("a record of %d bytes is above the limit of %d", n, recordMax)
	}
	r.buf = r.buf[:0]
	for uint64(len(r.buf)) < n { // it grows with what is there, whatever a length claims
		at := len(r.buf)
		r.buf = slices.Grow(r.buf, int(min(n-uint64(at), 1<<20)))[:at+int(min(n-uint64(at), 1<<20))]
		if err := r.full(r.buf[at:]); err != nil {
			return nil, fmt.Errorf("the snapshot ends early: %w", err)
		}
	}
	return r.buf, nil
}

func (r *summing) record(m proto.Message) error {
	b, err := r.bytes()
	if err != nil {
		return err
	}
	// Fields this binary does not know are kept out of the state.
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
}
