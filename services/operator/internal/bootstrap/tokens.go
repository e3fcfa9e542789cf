package bootstrap

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
)

const (
	poolDefault   = 16
	poolMax       = 1024
	mintTimeout   = 5 * time.Second // of one minting while a machine waits (OP-7.9)
	poolLife      = 30 * time.Minute
	tokensEvery   = 15 * time.Second
	mintGroup     = "system:bootstrappers:bigfleet"
	tokenAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// Token is one bootstrap token. Its secret leaves the process inside one blob and nowhere else.
type Token struct {
	ID      string
	Machine string // that it was handed to; empty while it is in the pool
	Expires time.Time
	secret  string
}

// TokensConfig is what Tokens needs.
type TokensConfig struct {
	Client      client.Client
	Pool        int           // tokens kept ready; 0 means 16
	Wanted      bool          // fill the pool from the start; else from the first token that is taken
	TTL         time.Duration // of blobs
	OnChange    func()        // the list of live tokens changed; may be nil
	Instruments *instruments.Instruments
	Log         *slog.Logger
}

// Tokens mints bootstrap tokens ahead of need and deletes them when they are used or expired. It can create and delete
// its own Secrets by name and has no right to read or list any (OP-7.10).
type Tokens struct {
	TokensConfig
	wake chan struct{}

	mu     sync.Mutex
	wanted bool
	ready  []*Token
	out    map[string]*Token // handed out or to be deleted, by id
}

// NewTokens starts nothing; Run fills the pool.
func NewTokens(c TokensConfig) (*Tokens, error) {
	if c.Client == nil || c.Instruments == nil || c.Log == nil {
		return nil, errors.New("bootstrap: Client, Instruments and Log are required")
	}
	if c.Pool == 0 {
		c.Pool = poolDefault
	}
	if c.Pool < 0 || c.Pool > poolMax {
		return nil, fmt.Errorf("a token pool of %d: want 1 to %d", c.Pool, poolMax)
	}
	if c.TTL == 0 {
		c.TTL = ttlDefault
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	return &Tokens{TokensConfig: c, wake: make(chan struct{}, 1), wanted: c.Wanted, out: map[string]*Token{}}, nil
}

// Take hands out a token that lives at least ttl and a margin. It comes from the pool, or is minted now.
func (t *Tokens) Take(ctx context.Context, machine string, ttl time.Duration) (*Token, error) {
	defer t.signal()
	t.mu.Lock()
	t.wanted = true
	for len(t.ready) > 0 {
		token := t.ready[0]
		t.ready = t.ready[1:]
		t.out[token.ID] = token
		if time.Until(token.Expires) >= ttl+ttlMargin {
			token.Machine = machine
			t.mu.Unlock()
			t.changed()
			return token, nil
		}
		token.Expires = time.Time{} // too old to hand out: deleted at the next look
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, mintTimeout)
	defer cancel()
	token, err := t.mint(ctx, machine, ttl+ttlMargin)
	if err != nil {
		return nil, problem(pb.BootstrapBlobResponse_ERROR_CLASS_TOKEN, true, "no bootstrap token could be minted: %v", err)
	}
	t.mu.Lock()
	t.out[token.ID] = token
	t.mu.Unlock()
	t.changed()
	return token, nil
}

// mint creates the Secret of a token (OP-7.8).
func (t *Tokens) mint(ctx context.Context, machine string, life time.Duration) (*Token, error) {
	token := &Token{ID: random(6), secret: random(16), Machine: machine, Expires: time.Now().Add(life).Truncate(time.Second)}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretName(token.ID)},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": token.ID, "token-secret": token.secret, "usage-bootstrap-authentication": "true",
			"auth-extra-groups": mintGroup, "expiration": token.Expires.UTC().Format(time.RFC3339),
			"description": "BigFleet: lets one machine join this cluster",
		},
	}
	if machine != "" {
		h := sha256.Sum256([]byte(machine))
		secret.Labels = map[string]string{v1alpha1.LabelMachineID: "h-" + hex.EncodeToString(h[:16])}
	}
	if err := t.Client.Create(ctx, secret); err != nil {
		return nil, err
	}
	return token, nil
}

func secretName(id string) string { return "bootstrap-token-" + id }

// random returns n characters of [a-z0-9], each equally likely.
func random(n int) string {
	out := make([]byte, 0, n)
	var b [64]byte
	for len(out) < n {
		if _, err := rand.Read(b[:]); err != nil {
			panic(err) // crypto/rand never fails on the platforms we run on
		}
		for _, v := range b {
			if v < 252 && len(out) < n { // 252 = 7 * 36
				out = append(out, tokenAlphabet[v%36])
			}
		}
	}
	return string(out)
}

// Joined says that a machine's Node is Ready: its tokens are of no use any more.
func (t *Tokens) Joined(machine string) {
	t.mu.Lock()
	for _, token := range t.out {
		if token.Machine == machine && machine != "" {
			token.Expires = time.Time{}
		}
	}
	t.mu.Unlock()
	t.signal()
}

// Adopt takes over tokens of an earlier process, by id, so that they are deleted when they have expired.
func (t *Tokens) Adopt(tokens []Token) {
	t.mu.Lock()
	for _, token := range tokens {
		if t.out[token.ID] == nil {
			t.out[token.ID] = &Token{ID: token.ID, Machine: token.Machine, Expires: token.Expires}
		}
	}
	t.mu.Unlock()
	t.signal()
}

// Live lists the tokens that exist, without secrets, by id.
func (t *Tokens) Live() []Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := maps.Clone(t.out)
	for _, token := range t.ready {
		all[token.ID] = token
	}
	out := make([]Token, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, Token{ID: id, Machine: all[id].Machine, Expires: all[id].Expires})
	}
	return out
}

func (t *Tokens) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run keeps the pool full and deletes what is over, until ctx ends. Then the tokens of the pool are deleted: they will
// not be handed out.
func (t *Tokens) Run(ctx context.Context) error {
	tick := time.NewTicker(tokensEvery)
	defer tick.Stop()
	for {
		t.clean(ctx)
		t.fill(ctx)
		select {
		case <-ctx.Done():
			t.retire(context.WithoutCancel(ctx))
			return nil
		case <-t.wake:
		case <-tick.C:
		}
	}
}

func (t *Tokens) fill(ctx context.Context) {
	for ctx.Err() == nil {
		t.mu.Lock()
		full := !t.wanted || len(t.ready) >= t.Pool
		t.mu.Unlock()
		if full {
			return
		}
		call, cancel := context.WithTimeout(ctx, mintTimeout)
		token, err := t.mint(call, "", max(poolLife, 2*t.TTL)+ttlMargin)
		cancel()
		if err != nil {
			t.Log.Warn("no bootstrap token could be minted", "err", err)
			return
		}
		t.mu.Lock()
		t.ready = append(t.ready, token)
		t.mu.Unlock()
		t.changed()
	}
}

// clean deletes tokens that are over.
func (t *Tokens) clean(ctx context.Context) {
	now := time.Now()
	t.mu.Lock()
	fresh := t.ready[:0]
	for _, token := range t.ready {
		if token.Expires.Sub(now) < t.TTL+ttlMargin {
			token.Expires = time.Time{}
			t.out[token.ID] = token
			continue
		}
		fresh = append(fresh, token)
	}
	t.ready = fresh
	var over []string
	for id, token := range t.out {
		if !now.Before(token.Expires) {
			over = append(over, id)
		}
	}
	t.mu.Unlock()
	for _, id := range over {
		t.delete(ctx, id)
	}
	if len(over) > 0 {
		t.changed()
	}
}

func (t *Tokens) delete(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, mintTimeout)
	defer cancel()
	err := t.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretName(id)}})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Log.Warn("a bootstrap token that is no longer needed could not be deleted", "token", id, "err", err)
		return
	}
	t.mu.Lock()
	delete(t.out, id)
	t.mu.Unlock()
}

func (t *Tokens) retire(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mintTimeout)
	defer cancel()
	t.mu.Lock()
	unused := t.ready
	t.ready = nil
	for _, token := range unused {
		t.out[token.ID] = token
	}
	t.mu.Unlock()
	for _, token := range unused {
		t.delete(ctx, token.ID)
	}
}

func (t *Tokens) changed() {
	t.mu.Lock()
	ready, out := len(t.ready), len(t.out)
	t.mu.Unlock()
	t.Instruments.BootstrapTokens.WithLabelValues("pooled").Set(float64(ready))
	t.Instruments.BootstrapTokens.WithLabelValues("handed_out").Set(float64(out))
	t.OnChange()
}
