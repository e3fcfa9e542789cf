package real

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Programs that a host needs from the machine, and the packages of Debian that bring them.
var needed = map[string]string{"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2", "nsenter": "util-linux"}

// pluginDir is where the distribution puts CNI plugins.
const pluginDir = "/usr/lib/cni"

// Missing says why containers cannot be run on this machine; nil when they can.
func Missing() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("real nodes need Linux, this is %s", runtime.GOOS)
	}
	var packages []string
	for program, from := range needed {
		if _, err := exec.LookPath(program); err != nil {
			packages = append(packages, from)
		}
	}
	if _, err := os.Stat(pluginDir + "/bridge"); err != nil {
		packages = append(packages, "containernetworking-plugins")
	}
	switch {
	case len(packages) > 0:
		return fmt.Errorf("real nodes need packages that are not here: apt-get install %s", strings.Join(packages, " "))
	case os.Geteuid() != 0:
		return fmt.Errorf("real nodes need root: namespaces, mounts and cgroups are made")
	}
	if err := exec.Command("unshare", "--mount", "--pid", "--net", "--fork", "true").Run(); err != nil {
		return fmt.Errorf("this machine does not let root make namespaces (unshare: %w)", err)
	}
	return nil
}
