// Package archive keeps a coordinator's state as a file: written, read back, verified, and restored without any server
// (COORD section 15).
//
// An archive is a tar of meta.json, state and SHA256SUMS, in this order, or a directory with the same files. Write
// decodes what it has written, so an archive that was reported as written can be read. Read checks the sums, decodes the
// state and runs every rule of COORD-3.2, before anything is done with it.
//
// Restore puts a state under a data directory with a new identity and a higher fencing term; it needs no reachable
// coordinator and refuses a directory that a process runs on. The package never dials anybody and never changes an
// archive it reads. Start at Read, Write and Restore.
package archive
