package real

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// Images of the fleet. No registry has them: each host imports them from an archive.
const (
	HelloImage = "bigfleet.test/hello:1"
	pauseImage = "bigfleet.test/pause:1"
)

// writeImages makes both images from one static program, as an archive in dir.
func writeImages(ctx context.Context, dir string) error {
	root, err := proc.Root()
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "hello")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Dir = filepath.Join(root, "e2e", "real", "testdata", "hello")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the image's program: %w: %s", err, out)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.Remove(program); err != nil {
		return err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	if err := w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o755, Size: int64(len(text))}); err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
	if err != nil {
		return err
	}
	images := map[name.Tag]v1.Image{}
	for reference, command := range map[string][]string{HelloImage: {"/hello"}, pauseImage: {"/hello", "pause"}} {
		image, err := mutate.AppendLayers(empty.Image, layer)
		if err != nil {
			return err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture, config.Config.Entrypoint = "linux", runtime.GOARCH, command
		if image, err = mutate.ConfigFile(image, config); err != nil {
			return err
		}
		tag, err := name.NewTag(reference)
		if err != nil {
			return err
		}
		images[tag] = image
	}
	return tarball.MultiWriteToFile(filepath.Join(dir, "images.tar"), images)
}
