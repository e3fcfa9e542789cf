package coordinator_test

import (
	"archive/tar"
	"io"
	"os"
	"testing"
)

// parts are the description and the state inside an archive.
func parts(t *testing.T, path string) (meta, state []byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	in := tar.NewReader(f)
	for {
		head, err := in.Next()
		if err == io.EOF {
			return meta, state
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		switch head.Name {
		case "meta.json":
			meta = data
		case "state":
			state = data
		}
	}
}

func writeTar(t *testing.T, path string, entries [][2]string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	out := tar.NewWriter(f)
	for _, e := range entries {
		if err := out.WriteHeader(&tar.Header{Name: e[0], Mode: 0o600, Size: int64(len(e[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(e[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
