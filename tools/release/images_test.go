package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// withPrograms is a release whose binaries are small scripts.
func withPrograms(t *testing.T) *plan {
	t.Helper()
	p := &plan{root: filepath.Join("..", ".."), version: "v0.3.0", out: t.TempDir(), platforms: platforms}
	if err := os.Mkdir(filepath.Join(p.out, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		for _, arch := range []string{"amd64", "arm64"} {
			script := fmt.Sprintf("#!/bin/sh\necho %s %s\n", image, arch)
			file := filepath.Join(p.out, "bin", fmt.Sprintf("%s_%s_linux_%s", image, p.version, arch))
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := layout.Write(filepath.Join(p.out, "oci"), empty.Index); err != nil {
		t.Fatal(err)
	}
	if err := p.writeCharts(); err != nil {
		t.Fatal(err)
	}
	if err := p.writeImages(); err != nil {
		t.Fatal(err)
	}
	return p
}

func indexes(t *testing.T, p *plan) map[string]v1.ImageIndex {
	t.Helper()
	path, err := layout.FromPath(filepath.Join(p.out, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]v1.ImageIndex{}
	for _, m := range manifest.Manifests {
		if !m.MediaType.IsIndex() {
			continue // a chart
		}
		index, err := all.ImageIndex(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		out[m.Annotations["org.opencontainers.image.ref.name"]] = index
	}
	return out
}

func TestImagesAreReproducible(t *testing.T) {
	first, second := indexes(t, withPrograms(t)), indexes(t, withPrograms(t))
	if len(first) != len(images) {
		t.Fatalf("%d images, want %d", len(first), len(images))
	}
	for ref, index := range first {
		a, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := second[ref].Digest(); err != nil || a != b {
			t.Errorf("%s: %s and %s (%v)", ref, a, b, err)
		}
	}
}

// An image goes to a registry and back, runs as a user without rights, and its program starts from the image's content.
func TestAnImageRunsFromARegistry(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	index := indexes(t, withPrograms(t))[imageRepository+"bigfleet-operator:v0.3.0"]
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/bigfleet-operator:v0.3.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := pulled.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || config.Config.Labels["org.opencontainers.image.version"] != "v0.3.0" {
		t.Errorf("user %q, labels %v", config.Config.User, config.Config.Labels)
	}
	root := unpack(t, pulled)
	out, err := exec.Command(filepath.Join(root, config.Config.Entrypoint[0])).CombinedOutput()
	if err != nil || string(out) != "bigfleet-operator amd64\n" {
		t.Fatalf("the entry point printed %q: %v", out, err)
	}
}

// unpack writes the files of an image below a new directory.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := t.TempDir()
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	r := tar.NewReader(content)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(to, data, h.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
