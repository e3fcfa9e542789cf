package ingest

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Answer is a MachineList whose records are still encoded. A decoded record is 54 objects, and half a million of them cost
// more than everything that is done with them; a Batch reads facts from the bytes.
type Answer struct {
	Records  []Record
	Removed  []string
	Revision []byte
	Complete bool
	More     bool
}

// Record is one encoded machine.
type Record []byte

// errAnswer is what bytes are that are no MachineList.
var errAnswer = errors.New("the answer is not a list of machines")

// Unmarshal reads an answer as proto.Unmarshal does, but for the inside of its records. It keeps nothing of raw.
func (a *Answer) Unmarshal(raw []byte) error {
	raw = append([]byte(nil), raw...)
	*a = Answer{}
	if len(raw) > 0 {
		a.Records = make([]Record, 0, len(raw)/256)
	}
	for len(raw) > 0 {
		num, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return errAnswer
		}
		raw = raw[n:]
		switch kind {
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(raw)
			if n < 0 {
				return errAnswer
			}
			raw = raw[n:]
			switch num {
			case 1:
				a.Records = append(a.Records, v[:len(v):len(v)])
			case 2:
				a.Revision = append([]byte(nil), v...) // outlives the records
			case 1002:
				if !utf8.Valid(v) {
					return errAnswer
				}
				a.Removed = append(a.Removed, string(v))
			}
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(raw)
			if n < 0 {
				return errAnswer
			}
			raw = raw[n:]
			switch num {
			case 1000:
				a.Complete = protowire.DecodeBool(v)
			case 1001:
				a.More = protowire.DecodeBool(v)
			}
		default:
			n := protowire.ConsumeFieldValue(num, kind, raw)
			if n < 0 {
				return errAnswer
			}
			raw = raw[n:]
		}
	}
	return nil
}

// ID is the id of a record that begins with it, as every encoder known to us writes it, or nothing. It serves to put records in
// order and for nothing else.
func (r Record) ID() []byte {
	if len(r) < 2 || r[0] != 1<<3|byte(protowire.BytesType) {
		return nil
	}
	v, _ := protowire.ConsumeBytes(r[1:])
	return v
}
