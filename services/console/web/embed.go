// Package web holds the built web application. Its source is beside this file; `make console` builds it into dist.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Files are those of the application, index.html at the root.
func Files() fs.FS {
	files, _ := fs.Sub(dist, "dist") // fails only for a path that is not one
	return files
}
