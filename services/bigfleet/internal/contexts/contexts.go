// Package contexts is the file in which people keep the addresses of their fleets (OPS-4.5):
// $XDG_CONFIG_HOME/bigfleet/config.yaml.
//
// It holds addresses and names of certificate files, never a secret. A flag on the command line wins over it.
package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Context is one fleet.
type Context struct {
	Coordinator []string `json:"coordinator,omitempty"`  // host:port
	Shard       string   `json:"shard,omitempty"`        // id or host:port
	ClusterUUID string   `json:"cluster-uuid,omitempty"` // of the coordinator's group: another one at the same address is refused
	TLSCert     string   `json:"tls-cert,omitempty"`
	TLSKey      string   `json:"tls-key,omitempty"`
	TLSCA       string   `json:"tls-ca,omitempty"`
	Kubeconfig  string   `json:"kubeconfig,omitempty"`
	KubeContext string   `json:"kube-context,omitempty"`
}

// File is the whole file.
type File struct {
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts,omitempty"`
}

// Mend says what to do about a file that cannot be read.
const Mend = "Correct that file, or delete it and create the contexts again with `bigfleet config set`"

// Path is where the file is for this environment.
func Path(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "bigfleet", "config.yaml"), nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", errors.New("neither XDG_CONFIG_HOME nor HOME is set")
	}
	return filepath.Join(home, ".config", "bigfleet", "config.yaml"), nil
}

// Load reads a file; one that is not there is empty.
func Load(path string) (File, error) {
	f := File{Contexts: map[string]Context{}}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if err := yaml.UnmarshalStrict(raw, &f); err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	return f, nil
}

// Save writes the file in one step.
func (f File) Save(path string) error {
	raw, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.WriteFile(part, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}
