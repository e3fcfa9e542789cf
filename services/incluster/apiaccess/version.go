package apiaccess

import (
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/version"
)

func gitVersion(body []byte) (string, error) {
	var v version.Info
	if err := json.Unmarshal(body, &v); err != nil {
		return "", err
	}
	if v.GitVersion == "" {
		return "", errors.New("the API server states no version")
	}
	return v.GitVersion, nil
}
