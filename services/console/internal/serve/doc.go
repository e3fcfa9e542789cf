// Package serve is what a console answers browsers: the Console service, an allow-list of read RPCs of shards and of the coordinator,
// and the files of the web application.
//
// Every request passes front, which refuses other sites' pages and unknown host names. An RPC that is not on the allow-list does
// not exist here. Start at New.
package serve
