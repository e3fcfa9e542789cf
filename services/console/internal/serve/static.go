package serve

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// file is one file of the web application, compressed once.
type file struct {
	kind         string
	plain, small []byte
	forEver      bool // its name holds its hash
}

// static serves the files of the application. A path without a file is a page of it.
type static struct{ files map[string]file }

func newStatic(dir fs.FS) (*static, error) {
	s := &static{files: map[string]file{}}
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		var small bytes.Buffer
		z, _ := gzip.NewWriterLevel(&small, gzip.BestCompression) // fails only for an unknown level
		if _, err := z.Write(plain); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		kind := mime.TypeByExtension(path.Ext(name))
		if kind == "" {
			kind = "application/octet-stream"
		}
		s.files["/"+name] = file{kind: kind, plain: plain, small: small.Bytes(), forEver: strings.HasPrefix(name, "assets/")}
		return nil
	})
	if err == nil && s.files["/index.html"].plain == nil {
		err = fmt.Errorf("the web application is not built: `make console` builds it")
	}
	return s, err
}

func (s *static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isRPC(r.URL.Path) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"unimplemented","message":"the console does not forward this RPC: it serves reads of the coordinator and of shards"}`)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	f, found := s.files[r.URL.Path]
	if !found {
		if strings.HasPrefix(r.URL.Path, "/assets/") {
			http.NotFound(w, r)
			return
		}
		f = s.files["/index.html"]
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache")
	if f.forEver {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Vary", "Accept-Encoding")
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.small
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // a browser that left
	}
}
