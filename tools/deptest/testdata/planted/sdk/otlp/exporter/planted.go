package exporter

import (
	_ "google.golang.org/grpc/codes"
)
