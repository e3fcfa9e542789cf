// Package status keeps the operator's own account of itself in one ConfigMap, for people and for `bigfleet doctor`.
//
// The account holds what changes rarely: it is compared before it is written, written at most every few seconds, and not
// at all while nothing changes. It also names the live bootstrap tokens, never their secrets, so that a successor can
// delete what is left over. Nothing but that list is read back.
//
// Start at Writer.Run.
package status

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of the ConfigMaps and their keys (OP-9.3, OP-14.4).
const (
	Name     = "bigfleet-operator-status"
	Key      = "status.json"
	StopName = "bigfleet-operator-stop"
	StopKey  = "evictions"
	StopText = "stop"
)

const (
	writeEvery   = 5 * time.Second
	drainsMax    = 200 // listed; a ConfigMap holds 1 MiB
	callTimeout  = 5 * time.Second
	timesGranted = time.Second
)

// Account is what the operator says of itself.
type Account struct {
	ClusterID        string         `json:"clusterID"`
	Session          Session        `json:"session"`
	Rollup           Rollup         `json:"rollup"`
	InvalidRequests  int            `json:"invalidRequests"`
	Drains           []Drain        `json:"drains,omitempty"`
	DrainsMore       int            `json:"drainsMore,omitempty"`       // not listed
	OutOfService     []OutOfService `json:"outOfService,omitempty"`     // machines whose nodes take no Pods
	OutOfServiceMore int            `json:"outOfServiceMore,omitempty"` // not listed
	NodeShapes       []NodeShape    `json:"nodeShapes,omitempty"`       // instance types whose Nodes are not as they were offered
	EvictionsStopped bool           `json:"evictionsStopped,omitempty"`
	WatchBrokenSince *Time          `json:"watchBrokenSince,omitempty"` // of CapacityRequests
	Versions         Versions       `json:"versions"`
	Tokens           []TokenID      `json:"bootstrapTokens,omitempty"`
}

// Time is a time to the second.
type Time = metav1.Time

// Session is the session to the shard.
type Session struct {
	Connected bool   `json:"connected"`
	Since     *Time  `json:"since,omitempty"`
	ShardAddr string `json:"shardAddress"`
	ShardID   string `json:"shardID,omitempty"`
	Refused   bool   `json:"refused,omitempty"` // the shard refuses us: see LastError
	LastError string `json:"lastError,omitempty"`
}

// Rollup is what became of the demand.
type Rollup struct {
	Result        string `json:"result,omitempty"`
	AcceptedSince *Time  `json:"acceptedSince,omitempty"` // first acceptance of the demand in force
	Rows          int    `json:"rows"`
	TooMuch       bool   `json:"aboveSoftLimit,omitempty"`
	Reason        string `json:"reason,omitempty"`
	Message       string `json:"message,omitempty"`
	Field         string `json:"field,omitempty"`
	Held          int32  `json:"held,omitempty"`
	HeldNeeded    int32  `json:"heldNeeded,omitempty"`
}

// Drain is one drain.
type Drain struct {
	Node        string `json:"node"`
	Machine     string `json:"machine"`
	Instruction string `json:"instruction"`
	Deadline    Time   `json:"deadline"`
	State       string `json:"state"`

	Budgets []string `json:"budgets,omitempty"` // that hold Pods of it, while it is blocked
}

// OutOfService is one machine whose node takes no Pods (OP-11.7).
type OutOfService struct {
	Node    string `json:"node"`
	Machine string `json:"machine"`
	Reason  string `json:"reason"` // Cordoned, Tainted or NodeLost
	Detail  string `json:"detail,omitempty"`
	Since   Time   `json:"since"`
	// AboveCap says that too many nodes are lost at once: BigFleet waits for this one instead of replacing it.
	AboveCap bool `json:"aboveCap,omitempty"`
}

// NodeShape is a resource of which the Nodes of an instance type have something else than their provider says (OP-5.26).
type NodeShape struct {
	InstanceType string `json:"instanceType"`
	Resource     string `json:"resource"`
	Offered      string `json:"offered,omitempty"`
	Found        string `json:"found"`
	Nodes        int    `json:"nodes"`
}

// Versions of what works together.
type Versions struct {
	Operator   string `json:"operator"`
	Shard      string `json:"shard,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
}

// TokenID names a live bootstrap token.
type TokenID struct {
	ID      string `json:"id"`
	Machine string `json:"machine,omitempty"`
	Expires Time   `json:"expires"`
}

// Writer writes the account.
type Writer struct {
	Client    client.Client
	Namespace string
	Read      func() Account // the account now
	Log       *slog.Logger
	Wrote     func(types.UID) // hears of the ConfigMap's uid after each write
}

// Load reads the account that an earlier process left. A missing one is empty.
func (w Writer) Load(ctx context.Context) (a Account, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var m corev1.ConfigMap
	err = w.Client.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: Name}, &m)
	if apierrors.IsNotFound(err) {
		return Account{}, nil
	}
	if err == nil && m.Data[Key] != "" {
		err = json.Unmarshal([]byte(m.Data[Key]), &a)
	}
	return a, err
}

// Run writes until ctx ends, and once more then.
func (w Writer) Run(ctx context.Context) error {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	var last []byte
	for {
		if now := w.text(); !bytes.Equal(now, last) {
			if err := w.put(ctx, now); err == nil {
				last = now
			} else if ctx.Err() == nil {
				w.Log.Warn("the operator's status could not be written", "configmap", Name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			if now := w.text(); !bytes.Equal(now, last) {
				_ = w.put(context.WithoutCancel(ctx), now)
			}
			return nil
		case <-tick.C:
		}
	}
}

func (w Writer) text() []byte {
	a := w.Read()
	if len(a.Drains) > drainsMax {
		a.DrainsMore = len(a.Drains) - drainsMax
		a.Drains = a.Drains[:drainsMax]
	}
	b, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		panic(err) // plain values
	}
	return b
}

func (w Writer) put(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"data": map[string]string{Key: string(text)}})
	if err != nil {
		return err
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: Name}}
	if err = w.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, body)); apierrors.IsNotFound(err) {
		m = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: Name, Labels: map[string]string{"app.kubernetes.io/name": "bigfleet-operator"}},
			Data:       map[string]string{Key: string(text)},
		}
		err = w.Client.Create(ctx, m)
	}
	if err == nil {
		w.Wrote(m.UID)
	}
	return err
}

// Second cuts a time to what the account shows; nil for the zero time.
func Second(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{Time: t.Truncate(timesGranted)}
}
