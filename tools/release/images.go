package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageRepository is where the charts look for images.
const imageRepository = "ghcr.io/bigfleet-dev/"

// images are the programs that the charts run. The image of `bigfleet` has every role; the others hold one program.
var images = []string{"bigfleet", "bigfleet-operator", "bigfleet-podcontroller", "bigfleet-provider-aws", "bigfleet-provider-clusterapi", "bigfleet-provider-hosts", "bigfleet-provider-kwok", "bigfleet-provider-sim"}

// nonRoot is the user and the group of every image. The charts' security context has the same number.
const nonRoot = 65532

// writeImages writes into the OCI layout one index for each image, linux on both architectures. An image holds its static binary,
// the license and a user table, and nothing else: no shell, no package manager. Equal binaries give equal digests.
func (p *plan) writeImages() error {
	to, err := layout.FromPath(filepath.Join(p.out, "oci"))
	if err != nil {
		return err
	}
	revision, err := p.git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	for _, name := range images {
		if _, err := os.Stat(filepath.Join(p.programs, name)); p.programs != "" && os.IsNotExist(err) {
			continue
		}
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, platform := range p.platforms {
			system, arch, _ := strings.Cut(platform, "/")
			if system != "linux" {
				continue
			}
			image, err := p.image(name, arch, revision)
			if err != nil {
				return fmt.Errorf("image %s for %s: %w", name, arch, err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: system, Architecture: arch}}})
		}
		ref := imageRepository + name + ":" + p.version
		if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref})); err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		fmt.Printf("%s@%s\n", ref, digest)
	}
	return nil
}

func (p *plan) image(name, arch, revision string) (v1.Image, error) {
	binary, err := os.ReadFile(filepath.Join(p.out, "bin", fmt.Sprintf("%s_%s_linux_%s", name, p.version, arch)))
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(p.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	content, err := archive(map[string]entry{
		"usr/bin/" + name:                {binary, 0o755},
		"usr/share/doc/bigfleet/LICENSE": {license, 0o644},
		"etc/passwd":                     {fmt.Appendf(nil, "nonroot:x:%[1]d:%[1]d::/:/sbin/nologin\n", nonRoot), 0o644},
	})
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config.Entrypoint = []string{"/usr/bin/" + name}
	config.Config.User = fmt.Sprintf("%[1]d:%[1]d", nonRoot)
	config.Config.Env = []string{"PATH=/usr/bin"}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title": name, "org.opencontainers.image.version": p.version, "org.opencontainers.image.revision": revision,
		"org.opencontainers.image.source": "https://github.com/bigfleet-dev/bigfleet", "org.opencontainers.image.licenses": "Apache-2.0",
	}
	return mutate.ConfigFile(image, config)
}

// entry is one file of a layer.
type entry struct {
	data []byte
	mode int64
}

// archive is a tar of files, and of the directories above them, that depends on nothing but its input.
func archive(files map[string]entry) ([]byte, error) {
	var names []string
	for name := range files {
		names = append(names, name)
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			names = append(names, dir+"/")
		}
	}
	slices.Sort(names)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Compact(names) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		f, isFile := files[name]
		if isFile {
			h.Typeflag, h.Mode, h.Size = tar.TypeReg, f.mode, int64(len(f.data))
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
