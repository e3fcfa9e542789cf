package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// Component is one program of a control plane, by the name of its binary.
type Component string

// The components.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kwok              Component = "kwok"
)

// Components lists all components in the order in which they start.
func Components() []Component {
	return []Component{Etcd, APIServer, ControllerManager, Scheduler, Kwok}
}

const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1" // the first of serviceCIDR; Service default/kubernetes
	podCIDR     = "10.128.0.0/9"

	// stopTimeout bounds a graceful stop. kube-apiserver would wait a minute for open requests.
	stopTimeout = 5 * time.Second
)

// processConfig returns how c runs.
func (cp *ControlPlane) processConfig(c Component) proc.Config {
	config := proc.Config{
		Name:    string(c),
		LogFile: filepath.Join(cp.LogDir(), string(c)+".log"),
		Dir:     cp.dir.path,
		// Whatever a component writes goes into our directory, and it must not find files of the user's.
		Env:         []string{"HOME=" + cp.path("tmp"), "TMPDIR=" + cp.path("tmp"), "KWOK_WORKDIR=" + cp.path("tmp"), "KUBECONFIG="},
		StopTimeout: stopTimeout,
	}
	switch c {
	case Etcd:
		config.Path, config.Args = cp.bin.Etcd, cp.etcdArgs()
		config.Ready = proc.HTTP("http://"+cp.ports.etcd.Addr()+"/readyz", nil)
	case APIServer:
		config.Path, config.Args = cp.bin.APIServer, cp.apiServerArgs()
		config.Ready = cp.tlsProbe(cp.ports.apiServer, "/readyz")
	case ControllerManager:
		config.Path, config.Args = cp.bin.ControllerManager, cp.controllerManagerArgs()
		config.Ready = cp.tlsProbe(cp.ports.controllerManager, "/healthz")
	case Scheduler:
		config.Path, config.Args = cp.bin.Scheduler, cp.schedulerArgs()
		config.Ready = cp.tlsProbe(cp.ports.scheduler, "/readyz")
	case Kwok:
		config.Path, config.Args = cp.bin.Kwok, cp.kwokArgs()
		config.Ready = proc.HTTP("http://"+cp.ports.kwok.Addr()+"/readyz", nil)
	}
	config.Args = append(config.Args, cp.cfg.Args[c]...)
	return config
}

func (cp *ControlPlane) tlsProbe(port *loopback.Port, path string) proc.Probe {
	roots := x509.NewCertPool()
	roots.AddCert(cp.ca.cert)
	return proc.HTTP("https://"+port.Addr()+path, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
}

func (cp *ControlPlane) etcdArgs() []string {
	client, peer := "http://"+cp.ports.etcd.Addr(), "http://"+cp.ports.etcdPeer.Addr()
	return []string{
		"--name=" + cp.cfg.Name,
		"--data-dir=" + cp.path("etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + cp.cfg.Name + "=" + peer,
		"--unsafe-no-fsync", // survives the death of etcd, not of the machine
		"--log-level=warn",
	}
}

func (cp *ControlPlane) apiServerArgs() []string {
	return []string{
		"--etcd-servers=http://" + cp.ports.etcd.Addr(),
		"--bind-address=" + cp.bindAddress(),
		"--advertise-address=127.0.0.1",
		"--secure-port=" + cp.ports.apiServer.String(),
		"--cert-dir=" + cp.path("tmp"),
		"--tls-cert-file=" + cp.path("pki", "serving.crt"),
		"--tls-private-key-file=" + cp.path("pki", "serving.key"),
		// A loopback address is not a valid endpoint of Service default/kubernetes, and no Pod runs that would use it.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceCIDR,

		"--client-ca-file=" + cp.path("pki", "ca.crt"),
		"--token-auth-file=" + cp.path("pki", "tokens.csv"),
		"--enable-bootstrap-token-auth",
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + cp.path("pki", "sa.pub"),
		"--service-account-signing-key-file=" + cp.path("pki", "sa.key"),
		"--allow-privileged",

		// Without these, a graceful stop waits a minute for watches that never end.
		"--shutdown-watch-termination-grace-period=1s",
		"--shutdown-send-retry-after",

		// Pods would wait for tokens to mount; no container of theirs ever starts.
		"--disable-admission-plugins=ServiceAccount",
		"--enable-admission-plugins=NodeRestriction",
	}
}

func (cp *ControlPlane) bindAddress() string {
	if cp.cfg.Address != "" {
		return "0.0.0.0"
	}
	return "127.0.0.1"
}

func (cp *ControlPlane) controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + cp.Kubeconfig(),
		"--bind-address=127.0.0.1",
		"--secure-port=" + cp.ports.controllerManager.String(),
		"--tls-cert-file=" + cp.path("pki", "serving.crt"),
		"--tls-private-key-file=" + cp.path("pki", "serving.key"),
		"--cluster-name=" + cp.cfg.Name,
		"--leader-elect=false",
		"--controllers=*,bootstrapsigner,tokencleaner", // as kubeadm has it
		"--root-ca-file=" + cp.path("pki", "ca.crt"),
		"--service-account-private-key-file=" + cp.path("pki", "sa.key"),
		"--cluster-signing-cert-file=" + cp.path("pki", "ca.crt"),
		"--cluster-signing-key-file=" + cp.path("pki", "ca.key"),
		// A ReplicaSet whose cache lags on a busy machine would be tried again with pauses that grow up to a quarter of an hour.
		"--feature-gates=StaleControllerConsistencyReplicaSet=false",
		"--kube-api-qps=1000", // the default of 20 would be what a test with a thousand Pods measures
		"--kube-api-burst=2000",
	}
}

func (cp *ControlPlane) schedulerArgs() []string {
	return []string{
		"--config=" + cp.path("config", "scheduler.yaml"),
		"--bind-address=127.0.0.1",
		"--secure-port=" + cp.ports.scheduler.String(),
		"--tls-cert-file=" + cp.path("pki", "serving.crt"),
		"--tls-private-key-file=" + cp.path("pki", "serving.key"),
	}
}

func (cp *ControlPlane) kwokArgs() []string {
	return []string{
		"--kubeconfig=" + cp.Kubeconfig(),
		"--config=" + cp.bin.KwokStages,
		"--config=" + cp.path("config", "kwok.yaml"),
		"--manage-all-nodes",
		// kwok keeps no leases by default: kube-controller-manager would call every Node NotReady after 50 s.
		"--node-lease-duration-seconds=40",
		"--cidr=" + podCIDR,
		"--node-ip=127.0.0.1",
		"--server-address=" + cp.ports.kwok.Addr(),
	}
}
