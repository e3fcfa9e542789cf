// Package bootstrap renders what a fresh machine needs to become a Node of this cluster.
//
// A Renderer answers the shard's requests from a template that the cluster's owner wrote, from the template that ships
// with BigFleet, or with a comment for clusters whose nodes need no boot data. The answer is always an answer: a
// template that fails withholds capacity, with the reason in words, and never ends the process.
//
// Rendering calls no API in the normal case: credentials come from a pool (Tokens) that is filled in the background, and
// a token is minted only for templates that ask for one and is handed out once. Blobs and tokens are secrets: they are
// never logged, and nothing here keeps them. A template can read no file, no environment, no network and no clock.
//
// Start at Renderer.Answer. Tests cite the operator specification as OP-n.n.
package bootstrap
