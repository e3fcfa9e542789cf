// Package identity says who the other end of a connection is.
//
// BigFleet processes prove themselves with one X.509 certificate each. The certificate carries exactly one URI SAN of
// the form bigfleet://kind or bigfleet://kind/name, and that URI is the identity: no host name, common name or
// organisation is ever read. The package owns three things: the syntax of identities (ID, Parse, FromCertificate),
// the files a process is given (Files: certificate, key, CA bundle) and their reload while the process runs (Source),
// and the TLS configurations made from them: TLS 1.3 only, both sides present a certificate.
//
// It must never decide what an identity may do: that is the table of each service. It never falls back to plaintext;
// a caller without files has no Source. It depends on the standard library alone, because third-party providers link
// it through sdk/provider.
//
// A Source is safe for concurrent use. It starts no goroutine: files are looked at when a handshake needs them, at
// most once a second, so a process that never connects never reads. A set of files that does not load or does not
// match keeps the last good set in force and is reported through Options.OnReload.
//
// Start at Load, then Source.ServerConfig and Source.Dialer. Package devca makes throw-away certificates for tests and
// trials. Tests cite clauses of docs/spec as WIRE-n.n, SHARD-n.n, PROV-n.n.
package identity
