package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/bootstrap"
)

// buildBootstrap makes the renderer, and the tokens that it hands out.
func (p *parts) buildBootstrap(ctx context.Context) (err error) {
	ca, err := p.caBundle()
	if err != nil {
		return err
	}
	kind := p.BootstrapRenderer
	needsCluster := p.Render == nil && kind != RendererStub
	server := p.APIServerURL
	if needsCluster {
		p.tokens, err = bootstrap.NewTokens(bootstrap.TokensConfig{
			Client: p.access.Client, Pool: p.BootstrapTokenPool, TTL: p.BootstrapTTL, Instruments: p.instruments, Log: p.log,
			Wanted: p.BootstrapTemplateFile == "" || kind == RendererBuiltIn,
		})
		if err != nil {
			return misconfigured(err)
		}
		if server == "" {
			if server, err = p.clusterInfo(ctx); err != nil {
				p.log.Info("the API server's URL for machines is not known: no --apiserver-url, and no ConfigMap kube-public/cluster-info", "err", err)
			}
		}
	}
	if server != "" {
		if err := checkAPIServer(server); err != nil {
			return misconfigured(err)
		}
	}
	p.renderer, err = bootstrap.New(bootstrap.Config{
		ClusterID: p.ClusterID, Renderer: kind, TemplateFile: p.BootstrapTemplateFile, Custom: p.Render, APIServer: server, CABundle: ca,
		KubeletVersion: p.KubeletVersion, TTL: p.BootstrapTTL, Tokens: p.tokens, Versions: p.versions, Instruments: p.instruments, Log: p.log,
	})
	if err != nil {
		return misconfigured(err)
	}
	return nil
}

// caBundle is what machines verify the API server with (OP-7.12).
func (p *parts) caBundle() ([]byte, error) {
	file, what := p.CABundleFile, "--ca-bundle-file"
	if file == "" {
		if len(p.REST.CAData) > 0 {
			return p.REST.CAData, nil
		}
		if file, what = p.REST.CAFile, "the CA of the client configuration"; file == "" {
			return nil, nil
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, misconfigured(fmt.Errorf("%s: %w", what, err))
	}
	if !strings.Contains(string(b), "BEGIN CERTIFICATE") {
		return nil, misconfigured(fmt.Errorf("%s %s holds no PEM certificate", what, file))
	}
	return b, nil
}

// clusterInfo reads the API server's public URL where kubeadm and others put it.
func (p *parts) clusterInfo(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var m corev1.ConfigMap
	if err := p.access.Client.Get(ctx, client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, &m); err != nil {
		return "", err
	}
	c, err := clientcmd.Load([]byte(m.Data["kubeconfig"]))
	if err != nil {
		return "", err
	}
	for _, cluster := range c.Clusters {
		if cluster.Server != "" {
			return cluster.Server, nil
		}
	}
	return "", errors.New("it names no server")
}

// checkAPIServer refuses addresses that a machine cannot reach: services of the cluster itself (OP-7.12).
func checkAPIServer(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--apiserver-url %q: want https://host:port", text)
	}
	host := u.Hostname()
	if net.ParseIP(host) == nil && (host == "kubernetes" || strings.HasPrefix(host, "kubernetes.default") || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local")) {
		return fmt.Errorf("--apiserver-url %s is a service of the cluster itself: a machine that joins cannot resolve it", text)
	}
	return nil
}
