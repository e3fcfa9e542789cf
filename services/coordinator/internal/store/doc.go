// Package store keeps a replica's Raft log and votes on disk (COORD section 5).
//
// Log implements raft.LogStore: segments of checksummed records, one write and one fsync per batch. Stable implements
// raft.StableStore: a small checksummed file that is replaced whole. Dir holds both under one directory, with the lock
// that keeps a second process out, the newest snapshot checked before Raft sees it, and the two-step rename of an
// offline restore.
//
// Two promises decide the shape. A write whose fsync failed is never acknowledged, and every later write fails too:
// the caller hears of it through OnFailure and stops the process (COORD-5.2). And damage is never read as data or as
// "empty": each record is checksummed, and a mark beside the segments says how far the log was acknowledged, so that a
// torn last write, which is normal after a crash, is distinguished from a lost or flipped one, which is a start error that names
// the file (COORD-5.3). docs/adr says why no store of others is used.
//
// It must never repair by dropping what was acknowledged. It knows nothing of what entries mean. Start at Open.
package store
