package publish

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/peers"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// nearBench is a cluster with zones a, b, c of one node each, named like them.
type nearBench struct {
	*testing.T
	*bench
	store *pods.Store
	line  *line
}

func newNearBench(t *testing.T) *nearBench {
	b := &nearBench{T: t}
	b.store = pods.New(nil, nil, func(old, now *pods.Pod) {
		b.PodChanged(old, now)
		b.Peers.PodChanged(old, now)
	})
	b.bench = newBench(t, func(c *Config) {
		c.Pod, c.Unbound = b.store.Get, b.store.Unbound
		c.Peers = peers.New(peers.Config{Pods: b.store.All, Label: func(node, _ string) (string, bool) { return node, true }, Changed: func() { b.NearChanged() }})
	})
	b.Synced()
	b.line = b.open()
	return b
}

// pod shows a Pod of an app on a node, or without one.
func (b *nearBench) pod(app, name, node string) {
	b.store.Set(pods.Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}, CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{NodeName: node}}))
}

// ask adds a Pod of app web, and its request: it must be near Pods of another app.
func (b *nearBench) ask(name, node, near string) {
	b.Helper()
	b.pod("web", name, node)
	r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: name, UID: types.UID(name), Controller: new(true)}}}}
	spec := fmt.Sprintf(`{"resources":{"cpu":"1"},"priority":0,"coLocation":{"topologyKey":"zone","labelSelector":{"matchLabels":{"app":%q}}}}`, near)
	if err := json.Unmarshal([]byte(spec), &r.Spec); err != nil {
		b.Fatal(err)
	}
	b.Set(r)
}

// where is what a roll-up says of the domains of its only row.
func where(n *pb.ClusterCapacityNeeds) (text string) {
	if len(n.Needs) == 0 {
		return ""
	}
	for _, r := range n.Needs[0].Requirements {
		text += strings.TrimPrefix(r.Operator.String(), "OPERATOR_") + " " + strings.Join(r.Values, ",") + " "
	}
	return strings.TrimSpace(text)
}

func (b *nearBench) after(d time.Duration, when, want string) {
	b.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := where(b.line.last()); got != want {
		b.Errorf("%s: %q, want %q", when, got, want)
	}
}

// OP-5.31: the first roll-up with a row says where the Pods run that its own must be near.
func TestARowBeginsWhereOthersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNearBench(t)
		b.pod("db", "db-0", "b")
		b.ask("web-0", "", "db")
		b.after(time.Second, "beside a Pod in zone b", "SAME  IN b")
		for _, n := range b.line.sent {
			if got := where(n); got != "" && got != "SAME  IN b" {
				t.Errorf("it was stated as %q before", got)
			}
		}
		b.pod("db", "db-1", "c")
		b.after(5*time.Second, "the other app runs in another zone, too", "IN b,c")
	})
}

// OP-5.31: a gang that starts in one domain is not stated again; one whose first Pods went elsewhere is, once the others wait for a while.
func TestAGangFollowsItsFirstPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNearBench(t)
		for i := range 4 {
			b.ask(fmt.Sprint("web-", i), "", "web")
		}
		b.after(time.Minute, "no Pod runs", "SAME")
		for i := range 4 {
			b.pod("web", fmt.Sprint("web-", i), "a")
			time.Sleep(300 * time.Millisecond)
		}
		b.after(time.Minute, "all of them run soon after the first", "SAME")
		b.ask("web-4", "", "web")
		b.after(5*time.Second, "one more waits", "SAME  IN a")
		b.pod("web", "web-4", "a")
		b.after(5*time.Minute, "it runs", "SAME  IN a")
	})
	synctest.Test(t, func(t *testing.T) {
		b := newNearBench(t)
		for i := range 4 {
			b.ask(fmt.Sprint("web-", i), "", "web")
		}
		time.Sleep(time.Minute)
		b.pod("web", "web-0", "b")
		b.after(time.Second, "the first one runs", "SAME")
		b.after(4*time.Second, "the others wait", "SAME  IN b")
	})
}

// OP-5.31: a domain stays while Pods of the row run there, and for a minute after the last Pod that counts left it. Nothing changes while no Pod of the row waits.
func TestADomainIsLeftLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNearBench(t)
		b.pod("db", "db-0", "a")
		b.pod("db", "db-1", "b")
		b.pod("db", "db-2", "c")
		b.ask("web-0", "b", "db")
		b.ask("web-1", "", "db")
		b.after(5*time.Second, "all zones", "IN a,b,c")
		b.store.Delete(b.store.Get("db-1"))
		b.store.Delete(b.store.Get("db-2"))
		b.after(50*time.Second, "two may be back", "IN a,b,c")
		b.after(15*time.Second, "one zone has a Pod of the row, one has none", "IN a,b")
		b.pod("web", "web-1", "a")
		b.pod("db", "db-2", "c")
		b.after(5*time.Minute, "no Pod waits", "IN a,b")
		b.ask("web-2", "", "db")
		b.after(5*time.Second, "one does", "IN a,b,c")
	})
	synctest.Test(t, func(t *testing.T) {
		b := newNearBench(t)
		b.pod("db", "db-0", "a")
		b.ask("web-0", "", "db")
		b.after(5*time.Second, "beside the only one", "SAME  IN a")
		sent := len(b.line.sent)
		b.store.Delete(b.store.Get("db-0"))
		time.Sleep(30 * time.Second)
		b.pod("db", "db-0", "a")
		b.after(time.Minute, "it was restarted", "SAME  IN a")
		if slices.ContainsFunc(b.line.sent[sent:], func(n *pb.ClusterCapacityNeeds) bool { return where(n) != "SAME  IN a" }) {
			t.Error("the row changed meanwhile")
		}
	})
}
