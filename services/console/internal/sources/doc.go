// Package sources follows the coordinator and every shard once, however many people look: it keeps the newest state of each and
// wakes those who wait for a change. Viewers read states and never queue messages, so one that is slow costs nothing and
// misses nothing but what was overtaken.
//
// A source that does not answer keeps its last state with the time of it and says why; nothing is filled in.
// Start at New, then Run.
package sources
