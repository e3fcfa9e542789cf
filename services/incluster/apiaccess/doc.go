// Package apiaccess is how a process that runs inside a managed cluster reaches its API server.
//
// Connect turns a rest.Config into a client for writes and live reads, and an informer cache for everything else. Both
// get the kinds they serve beforehand, so that nothing is discovered: no extra permission, no start that fails
// because a CustomResourceDefinition comes a second later. Objects are stripped before they enter the cache, and are
// read from it without copies: who reads must not write.
//
// Client-side rate limiting is off unless asked for; the API server's priority and fairness governs (OP-2.1).
//
// The package owns no policy and no state beyond what Connect returns. Start at Connect.
package apiaccess
