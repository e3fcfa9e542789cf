package volumes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func show(terms [][]corev1.NodeSelectorTerm) string {
	var out []string
	for _, alternatives := range terms {
		var or []string
		for _, term := range alternatives {
			var and []string
			for _, e := range term.MatchExpressions {
				and = append(and, fmt.Sprint(e.Key, " ", e.Operator, " ", e.Values))
			}
			or = append(or, strings.Join(and, " & "))
		}
		out = append(out, strings.Join(or, " | "))
	}
	return strings.Join(out, "; ")
}

// OP-15.29: where a volume can be used becomes terms; what no machine can settle is named.
func TestWhereVolumesCanBe(t *testing.T) {
	wffc := `{metadata: {name: late}, provisioner: x, volumeBindingMode: WaitForFirstConsumer`
	claim := `{metadata: {namespace: a, name: data}, spec: {storageClassName: late}}`
	pod := `{metadata: {namespace: a, name: p, uid: p}, spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}`
	for name, c := range map[string]struct {
		pod, claim, volume, class string
		terms, waits              string
	}{
		"no volumes":        {pod: `{metadata: {namespace: a, name: p}, spec: {volumes: [{name: v, emptyDir: {}}]}}`},
		"no claim":          {waits: `volume "v": PersistentVolumeClaim data does not exist`},
		"no class":          {claim: claim, waits: "names the storage class late, which does not exist"},
		"without a class":   {claim: `{metadata: {namespace: a, name: data}}`, waits: "has no storage class and is not bound"},
		"immediate":         {claim: claim, class: `{metadata: {name: late}, provisioner: x, volumeBindingMode: Immediate}`, waits: "is not bound to a volume yet"},
		"immediate, unsaid": {claim: claim, class: `{metadata: {name: late}, provisioner: x}`, waits: "is not bound to a volume yet"},
		"anywhere":          {claim: claim, class: wffc + `}`},
		"topologies": {claim: claim, class: wffc + `, allowedTopologies: [{matchLabelExpressions: [{key: topology.ebs.csi.aws.com/zone, values: [z1, z2]}]}, {matchLabelExpressions: [{key: rack, values: [r1]}]}]}`,
			terms: "topology.kubernetes.io/zone In [z1 z2] | rack In [r1]"},
		"lost volume": {claim: `{metadata: {namespace: a, name: data}, spec: {volumeName: pv}}`, waits: "is bound to volume pv, which does not exist"},
		"affinity": {claim: `{metadata: {namespace: a, name: data}, spec: {volumeName: pv}}`,
			volume: `{metadata: {name: pv}, spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.gke.io/zone, operator: In, values: [z3]}]}]}}}}`,
			terms:  "topology.kubernetes.io/zone In [z3]"},
		"zone by label": {claim: `{metadata: {namespace: a, name: data}, spec: {volumeName: pv}}`,
			volume: `{metadata: {name: pv, labels: {topology.kubernetes.io/zone: z1__z2}}}`, terms: "topology.kubernetes.io/zone In [z1 z2]"},
		"deleted": {claim: `{metadata: {namespace: a, name: data, deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {storageClassName: late}}`, class: wffc + `}`, waits: "is being deleted"},
		"ephemeral": {pod: `{metadata: {namespace: a, name: p}, spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: late}}}}]}}`,
			class: wffc + `, allowedTopologies: [{matchLabelExpressions: [{key: rack, values: [r1]}]}]}`, terms: "rack In [r1]"},
	} {
		s := New(func([]types.UID) {})
		if c.claim != "" {
			s.SetClaim(strip(t, read[corev1.PersistentVolumeClaim](t, c.claim)))
		}
		if c.volume != "" {
			s.SetVolume(strip(t, read[corev1.PersistentVolume](t, c.volume)))
		}
		if c.class != "" {
			s.SetClass(strip(t, read[storagev1.StorageClass](t, c.class)))
		}
		if c.pod == "" {
			c.pod = pod
		}
		terms, waits := s.Of(read[corev1.Pod](t, c.pod))
		if show(terms) != c.terms || !strings.Contains(waits, c.waits) || (waits == "") != (c.waits == "") {
			t.Errorf("%s: %q, waits %q; want %q, %q", name, show(terms), waits, c.terms, c.waits)
		}
	}
}

func strip[T any](t *testing.T, o T) T {
	t.Helper()
	out, err := Strip(o)
	if err != nil {
		t.Fatal(err)
	}
	return out.(T)
}

// OP-15.29: a change of a claim, of its volume or of a class is news for the Pods that use it and for no others; Pods that are gone
// hear nothing, and nothing of them is left.
func TestUsersHearOfChanges(t *testing.T) {
	var heard []types.UID
	s := New(func(uids []types.UID) { heard = append(heard, uids...) })
	uses := read[corev1.Pod](t, `{metadata: {namespace: a, name: p, uid: p}, spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}`)
	other := read[corev1.Pod](t, `{metadata: {namespace: b, name: q, uid: q}, spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}`)
	s.SetPod(uses)
	s.SetPod(other)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "data"}}
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "a", Name: "data"}}}
	for name, change := range map[string]func(){
		"claim": func() { s.SetClaim(claim) }, "no claim": func() { s.DeleteClaim(claim) },
		"volume": func() { s.SetVolume(volume) }, "no volume": func() { s.DeleteVolume(volume) },
	} {
		heard = nil
		change()
		if !slices.Equal(heard, []types.UID{"p"}) {
			t.Errorf("%s: %v heard of it", name, heard)
		}
	}
	heard = nil
	s.SetClass(&storagev1.StorageClass{})
	if slices.Sort(heard); !slices.Equal(heard, []types.UID{"p", "q"}) {
		t.Errorf("class: %v heard of it", heard)
	}
	s.DeletePod(uses)
	s.DeletePod(other)
	if s.SetClaim(claim); len(s.users) != 0 {
		t.Errorf("left: %v", s.users)
	}
}

// OP-15.29: volumes are counted by the driver that attaches them: of a bound volume, or of the class that is about to make it; those of the
// tree by the driver that they were moved to; each claim once.
func TestAttaches(t *testing.T) {
	s := New(func([]types.UID) {})
	for _, c := range []string{
		`{metadata: {namespace: a, name: bound}, spec: {volumeName: pv}}`, `{metadata: {namespace: a, name: old}, spec: {volumeName: old}}`,
		`{metadata: {namespace: a, name: late}, spec: {storageClassName: late}}`, `{metadata: {namespace: a, name: local}, spec: {storageClassName: local}}`,
		`{metadata: {namespace: a, name: lost}, spec: {volumeName: gone}}`,
	} {
		s.SetClaim(strip(t, read[corev1.PersistentVolumeClaim](t, c)))
	}
	s.SetVolume(strip(t, read[corev1.PersistentVolume](t, `{metadata: {name: pv}, spec: {csi: {driver: ebs.csi.aws.com, volumeHandle: x}}}`)))
	s.SetVolume(strip(t, read[corev1.PersistentVolume](t, `{metadata: {name: old}, spec: {awsElasticBlockStore: {volumeID: x}}}`)))
	s.SetClass(strip(t, read[storagev1.StorageClass](t, `{metadata: {name: late}, provisioner: pd.csi.storage.gke.io, volumeBindingMode: WaitForFirstConsumer}`)))
	s.SetClass(strip(t, read[storagev1.StorageClass](t, `{metadata: {name: local}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}`)))
	for text, want := range map[string]string{
		`[{name: v, emptyDir: {}}]`: "map[]",
		`[{name: v, persistentVolumeClaim: {claimName: bound}}, {name: w, persistentVolumeClaim: {claimName: bound}}]`: "map[ebs.csi.aws.com:1]",
		`[{name: v, persistentVolumeClaim: {claimName: bound}}, {name: w, persistentVolumeClaim: {claimName: old}}]`:   "map[ebs.csi.aws.com:2]",
		`[{name: v, persistentVolumeClaim: {claimName: late}}, {name: w, persistentVolumeClaim: {claimName: local}}]`:  "map[pd.csi.storage.gke.io:1]",
		`[{name: v, persistentVolumeClaim: {claimName: lost}}, {name: w, persistentVolumeClaim: {claimName: none}}]`:   "map[]",
		`[{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: late}}}}]`:                              "map[pd.csi.storage.gke.io:1]",
	} {
		p := read[corev1.Pod](t, `{metadata: {namespace: a, name: p, uid: p}, spec: {volumes: `+text+`}}`)
		if got := fmt.Sprint(s.Attaches(p)); got != want {
			t.Errorf("%s attaches %s, want %s", text, got, want)
		}
	}
}
