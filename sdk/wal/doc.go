// Package wal frames the records of files that are only appended to. The coordinator's Raft log, the provider's log and the
// shard's decision log share it.
//
// A frame is a head of 20 bytes, metadata and a body. Numbers are big endian.
//
//	2  a mark, 0xBF 0x01
//	2  length of the metadata
//	4  length of the body
//	4  CRC-32C of the metadata
//	4  CRC-32C of the body
//	4  CRC-32C of the 16 bytes above
//	   metadata: what a reader needs to know without reading the body
//	   body
//
// The head has its own checksum, so a damaged length is never taken for a short file. A reader distinguishes three ends:
//
//   - io.EOF: the file ends behind a frame.
//   - ErrTorn: the file ends within a frame, or only zeros follow. A crash during an append leaves this. Truncate the file at
//     Reader.Offset and append there, unless what is missing was acknowledged.
//   - ErrDamaged: a checksum does not match. Only a caller that knows the acknowledged end may treat damage behind it as torn.
//
// Format.BodyMax is the one limit of a file: Append refuses a body that Parse and Reader would refuse.
//
// The package owns the layout of a frame and nothing else. File headers, segments, flushing and the acknowledged end belong to
// the caller. It uses the standard library alone. Start at Format.
package wal
