// Package crash tests what a shard process leaves behind when it dies, and what it does when its disk fails.
//
// The tests run the real program. One build of it, made through an overlay so that no file of the product changes, counts
// each write to the epoch file, shard.db and the decision log, and kills itself with SIGKILL at the one it was given: before
// it, in the middle of it, or after it. The next process must find its way from there. Disk faults are real ones: limits of
// the kernel on what the process may write, a directory without write permission, a file system that is full.
//
// There is nothing to import. Start at kill_test.go.
package crash
