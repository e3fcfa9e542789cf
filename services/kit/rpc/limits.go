package rpc

import (
	"errors"
	"net/http"
	"time"
)

// Limits of one service or client, in bytes of one message. Both are required; there is no unlimited. Of a compressed
// message the sender's limit counts the compressed bytes and the reader's the plain ones, so the reader's decides.
type Limits struct {
	ReadMaxBytes int
	SendMaxBytes int
}

func (l Limits) check() error {
	if l.ReadMaxBytes <= 0 || l.SendMaxBytes <= 0 {
		return errors.New("Limits.ReadMaxBytes and Limits.SendMaxBytes are required")
	}
	return nil
}

// ReadLimits are those of read and admin services, as the server sees them: requests 4 MiB, answers 256 MiB (WIRE-4.4).
func ReadLimits() Limits { return Limits{ReadMaxBytes: 4 << 20, SendMaxBytes: 256 << 20} }

// ReadClientLimits are the same seen by the client.
func ReadClientLimits() Limits { return Limits{ReadMaxBytes: 256 << 20, SendMaxBytes: 4 << 20} }

const (
	// streamsMax bounds concurrent calls on one connection; a session needs one, the CLI a few, a shard's provider
	// client 128 commands and its Lists.
	streamsMax = 1000
	// connectionsMax bounds the connections of one listener: twice the sessions a shard takes (SHARD-7.10), so that a
	// reconnect storm finds room while the old connections die.
	connectionsMax = 20_000
	// headerBytesMax bounds the headers of a request; ours are under 2 KiB.
	headerBytesMax = 64 << 10
	// headerTimeout bounds how long a new connection may take to say anything.
	headerTimeout = 10 * time.Second
	// idleTimeout closes a connection without calls. Longer than every polling interval of a conforming peer.
	idleTimeout = 5 * time.Minute
	// peerConnectionsMax and peerCallsMax bound one certificate. A shard holds some 200 calls at its provider, an operator one; a
	// person's certificate is shared by commands and consoles.
	peerConnectionsMax = 256
	peerCallsMax       = 2000
	// bodyTimeout bounds how long the request of a call whose client does not stream may take to arrive.
	bodyTimeout = 30 * time.Second
	// metaBytesMax bounds requests of the health and reflection services, metaAnswerMax their answers.
	metaBytesMax  = 64 << 10
	metaAnswerMax = 4 << 20
	// compressMinBytes is the least message that is compressed for a client that asks: for a smaller one the compressor costs more than it saves.
	compressMinBytes = 4 << 10
	// dialTimeout bounds connect plus TLS handshake.
	dialTimeout = 5 * time.Second
	// stopTimeout is how long Run lets calls finish after its context ended.
	stopTimeout = 5 * time.Second
	// shutdownSlice is how often connections that arrived during a stop are asked to go away.
	shutdownSlice = 250 * time.Millisecond
	// cutGrace is how long a call may take to answer after its context ended in a stop.
	cutGrace = 500 * time.Millisecond
)

// Keepalive says when a silent connection is asked whether it is alive. Zero fields mean 30 s and 10 s (WIRE-4.5).
type Keepalive struct {
	Interval time.Duration // silence before a ping is sent
	Timeout  time.Duration // time for the answer; then the connection is closed and its calls fail
}

func (k Keepalive) http2(streams int) *http.HTTP2Config {
	if k.Interval == 0 {
		k.Interval = 30 * time.Second
	}
	if k.Timeout == 0 {
		k.Timeout = 10 * time.Second
	}
	return &http.HTTP2Config{SendPingTimeout: k.Interval, PingTimeout: k.Timeout, MaxConcurrentStreams: streams}
}
