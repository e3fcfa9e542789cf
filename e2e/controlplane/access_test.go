package controlplane_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os/exec"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
)

// Who may do what, and how manifests get in. One control plane serves all of it.
func TestAccess(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{Name: "access", Omit: []controlplane.Component{controlplane.Scheduler}})
	if cp.Component(controlplane.Scheduler) != nil {
		t.Error("the omitted scheduler runs")
	}
	t.Run("users have the rights of RBAC", func(t *testing.T) { testUsers(t, cp) })
	t.Run("a kubelet bootstraps its certificate", func(t *testing.T) { testBootstrap(t, cp) })
	t.Run("manifests are applied in order", func(t *testing.T) { testApply(t, cp) })
	t.Run("kubectl", func(t *testing.T) { testKubectl(t, cp) })
}

// A program under test runs as a user who has what RBAC grants and no more.
func testUsers(t *testing.T, cp *controlplane.ControlPlane) {
	config, err := cp.UserConfig("alice", "operators")
	if err != nil {
		t.Fatal(err)
	}
	alice := clientset(t, config)
	listNodes := func(ctx context.Context) error {
		_, err := alice.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	}
	if err := listNodes(t.Context()); !apierrors.IsForbidden(err) {
		t.Fatalf("before the grant: %v; want Forbidden", err)
	}
	grant := `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-reader}
rules: [{apiGroups: [""], resources: [nodes], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators-read-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: operators}]
`
	if err := cp.ApplyYAML(t.Context(), []byte(grant)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the grant to work", func(ctx context.Context) (bool, error) {
		err := listNodes(ctx)
		if apierrors.IsForbidden(err) {
			return false, nil // the authorizer follows by watch
		}
		return err == nil, err
	})
	if _, err := alice.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("alice reads secrets: %v; want Forbidden", err)
	}

	// The same identity from a file, as a separate program has it; other groups are another identity.
	path, err := cp.UserKubeconfig("alice", "operators")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), cp.Kubectl(), "--kubeconfig="+path, "get", "nodes").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	other, err := cp.UserKubeconfig("alice")
	if err != nil || other == path {
		t.Fatalf("alice without groups shares the file of alice the operator (%v)", err)
	}
	if _, err := cp.UserConfig(""); err == nil {
		t.Fatal("a user without a name was minted")
	}
}

// A bootstrap token, the approving and the signing controllers: what a real kubelet goes through to join.
func testBootstrap(t *testing.T, cp *controlplane.ControlPlane) {
	ctx := t.Context()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef", Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
	}
	if _, err := cp.Client().CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]string{
		"bootstrap": "system:node-bootstrapper",
		"approve":   "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
	} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers"}},
		}
		if _, err := cp.Client().RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	key, request := certificateRequest(t, "system:node:joiner", "system:nodes")
	bootstrap := clientset(t, cp.TokenConfig("abcdef.0123456789abcdef"))
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "joiner"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    request,
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	waitFor(t, "the bootstrap token to be accepted", func(ctx context.Context) (bool, error) {
		_, err := bootstrap.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return false, nil // authenticator and authorizer follow by watch
		}
		return err == nil, err
	})
	var certificate []byte
	waitFor(t, "the certificate", func(ctx context.Context) (bool, error) {
		got, err := bootstrap.CertificatesV1().CertificateSigningRequests().Get(ctx, "joiner", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		certificate = got.Status.Certificate
		return len(certificate) > 0, nil
	})

	config := cp.TokenConfig("")
	config.CertData, config.KeyData = certificate, key
	joiner := clientset(t, config)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joiner"}}
	if _, err := joiner.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatalf("the kubelet registers itself: %v", err)
	}
	node.Name = "somebody-else"
	if _, err := joiner.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("the kubelet registers another Node: %v; want Forbidden", err)
	}
}

// A resource comes before its definition and its namespace in the file, and still lands; applying twice changes it.
func testApply(t *testing.T, cp *controlplane.ControlPlane) {
	if err := cp.ApplyDir(t.Context(), "testdata/manifests"); err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	widgets := objects.Resource(schema.GroupVersionResource{Group: "test.example.com", Version: "v1", Resource: "widgets"})
	size := func(namespace, name string) any {
		t.Helper()
		w, err := widgets.Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return w.Object["spec"].(map[string]any)["size"]
	}
	if size("workshop", "first") != int64(1) || size("default", "second") != int64(2) {
		t.Fatal("the widgets are not as the manifests have them")
	}
	changed := `{"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": "second"}, "spec": {"size": 3}}`
	if err := cp.ApplyYAML(t.Context(), []byte(changed)); err != nil {
		t.Fatal(err)
	}
	if got := size("default", "second"); got != int64(3) {
		t.Fatalf("after the second apply the size is %v", got)
	}
	for want, manifest := range map[string]string{
		"document 2":     "kind: A\napiVersion: v1\n---\nmetadata: {}\n",
		"spec.size":      strings.Replace(changed, "3", `"large"`, 1),
		"no matches for": `{"apiVersion": "apps/v1", "kind": "Nonsense", "metadata": {"name": "x"}}`,
	} {
		if err := cp.ApplyYAML(t.Context(), []byte(manifest)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ApplyYAML(%s) = %v; want an error with %q", manifest, err, want)
		}
	}
	if err := cp.ApplyDir(t.Context(), t.TempDir()); err == nil {
		t.Error("an empty directory was applied")
	}
}

// The binaries know their version: clients and kubectl compare it.
func testKubectl(t *testing.T, cp *controlplane.ControlPlane) {
	out, err := exec.CommandContext(t.Context(), cp.Kubectl(), "--kubeconfig="+cp.Kubeconfig(), "version").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Count(string(out), "v1.36.3") != 2 {
		t.Errorf("client and server are not both v1.36.3:\n%s", out)
	}
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func certificateRequest(t *testing.T, user, group string) (keyPEM, requestPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{group}}}
	request, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
}
