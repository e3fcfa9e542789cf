package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// UserConfig returns the client configuration of a user with that name and those groups, who may do what RBAC grants
// them and nothing else. There is nothing to create first: the identity is a client certificate signed here.
func (cp *ControlPlane) UserConfig(name string, groups ...string) (*rest.Config, error) {
	pair, err := cp.userCertificate(name, groups)
	if err != nil {
		return nil, err
	}
	config := cp.anonymousConfig()
	config.CertData, config.KeyData = pair.certPEM, pair.keyPEM
	return config, nil
}

// UserKubeconfig writes a kubeconfig for the same identity, for a program that runs as that user, and returns its path.
func (cp *ControlPlane) UserKubeconfig(name string, groups ...string) (string, error) {
	pair, err := cp.userCertificate(name, groups)
	if err != nil {
		return "", err
	}
	cp.users.Lock()
	defer cp.users.Unlock()
	path := cp.path("users", userFile(name, groups))
	auth := &clientcmdapi.AuthInfo{ClientCertificateData: pair.certPEM, ClientKeyData: pair.keyPEM}
	return path, cp.writeKubeconfig(path, name, auth)
}

// TokenConfig returns the client configuration of a client with token: a bootstrap token ("id.secret") or one of a
// service account.
func (cp *ControlPlane) TokenConfig(token string) *rest.Config {
	config := cp.anonymousConfig()
	config.BearerToken = token
	return config
}

func (cp *ControlPlane) userCertificate(name string, groups []string) (keyPair, error) {
	if name == "" {
		return keyPair{}, errors.New("a user needs a name")
	}
	return cp.ca.client(name, groups)
}

// userFile is readable and unique: names may hold any character, such as the colons of system users.
func userFile(name string, groups []string) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, name)
	sum := sha256.Sum256([]byte(name + "\x00" + strings.Join(groups, "\x00")))
	return readable[:min(len(readable), 80)] + "-" + hex.EncodeToString(sum[:4]) + ".kubeconfig"
}
