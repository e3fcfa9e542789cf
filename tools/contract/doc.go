// Package contract checks the wire contract: what docs/spec/wire.md says, what proto/ says and what gen/ holds.
//
// ReadSpec reads the tables of the specification into a Spec. Spec.Listing and Listing (over compiled descriptors) write
// the same schema as the same lines of text, so that the test that compares them shows a difference as the two lines
// that disagree. A typo can then land on neither side: an edit of the table needs one of the proto, and the reverse.
//
// Strip reduces compiled files to the contract alone (numbers below 1000 of section 14). Its output is the image that
// `buf breaking` guards forever; cmd/contractimage writes it.
//
// The package owns no schema of its own and is used by tests and by the generation scripts only; no service imports it.
// Start at spec.go, then listing.go. Tests cite clauses of docs/spec/wire.md as WIRE-n.n.
package contract
