package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// chartRepository is where `helm install oci://…` finds the charts.
const chartRepository = imageRepository + "charts/"

// The media types of a chart in a registry, from Helm's documentation of OCI registries.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// writeCharts writes each chart that can be installed as an archive, and into the image layout as an artefact. Its version is that
// of the release; its appVersion is the tag of the images.
func (p *plan) writeCharts() error {
	found, err := filepath.Glob(filepath.Join(p.root, "deploy", "charts", "*", "Chart.yaml"))
	if err != nil {
		return err
	}
	to, err := layout.FromPath(filepath.Join(p.out, "oci"))
	if err != nil {
		return err
	}
	for _, name := range found {
		if err := p.writeChart(filepath.Dir(name), to); err != nil {
			return fmt.Errorf("chart %s: %w", filepath.Base(filepath.Dir(name)), err)
		}
	}
	return nil
}

var chartVersions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

func (p *plan) writeChart(dir string, to layout.Path) error {
	name, version := filepath.Base(dir), strings.TrimPrefix(p.version, "v")
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	if bytes.Contains(text, []byte("\ntype: library")) {
		return nil // it is a part of those that use it, and of the template of sdk/provider
	}
	text = chartVersions.ReplaceAllFunc(text, func(line []byte) []byte {
		if bytes.HasPrefix(line, []byte("app")) {
			return []byte("appVersion: " + p.version)
		}
		return []byte("version: " + version)
	})
	files := map[string]entry{}
	if err := addDirectory(files, dir, name); err != nil {
		return err
	}
	files[name+"/Chart.yaml"] = entry{text, 0o644}
	content, err := compressed(files)
	if err != nil {
		return err
	}
	archive := filepath.Join(p.out, "charts", name+"-"+version+".tgz")
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(archive, content, 0o644); err != nil {
		return err
	}
	config, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	image, err := artefact(config, content)
	if err != nil {
		return err
	}
	ref := chartRepository + name + ":" + version
	fmt.Println(ref)
	return to.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref}))
}

// addDirectory adds the files below a directory. Symbolic links are followed, as helm does: charts share a library and files.
func addDirectory(files map[string]entry, dir, to string) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(path))
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0 && info.IsDir():
			return addDirectory(files, name, to+"/"+path)
		case info.IsDir():
			return nil
		}
		data, err := os.ReadFile(name)
		files[to+"/"+path] = entry{data, 0o644}
		return err
	})
}

func compressed(files map[string]entry) ([]byte, error) {
	content, err := archive(files)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// chart is an artefact of one layer whose configuration is the chart's description.
type chart struct {
	config, manifest []byte
	layer            v1.Layer
}

func artefact(config, content []byte) (v1.Image, error) {
	c := &chart{config: config, layer: static.NewLayer(content, chartContent)}
	about, err := partial.Descriptor(c.layer)
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	if c.manifest, err = json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: chartConfig, Digest: digest, Size: size}, Layers: []v1.Descriptor{*about}}); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(c)
}

func (c *chart) RawConfigFile() ([]byte, error)                         { return c.config, nil }
func (c *chart) MediaType() (types.MediaType, error)                    { return types.OCIManifestSchema1, nil }
func (c *chart) RawManifest() ([]byte, error)                           { return c.manifest, nil }
func (c *chart) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return c.layer, nil }
