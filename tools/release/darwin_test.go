package main

import (
	"debug/macho"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// OPS-1.4: the program that holds every role builds for darwin from a machine that has another system.
func TestProgramsBuildForDarwin(t *testing.T) {
	program := filepath.Join(t.TempDir(), "bigfleet")
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, ".")
	c.Dir = filepath.Join("..", "..", "services", "bigfleet")
	c.Env = append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := macho.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if f.Cpu != macho.CpuArm64 || f.Type != macho.TypeExec {
		t.Errorf("built a %s for %s", f.Type, f.Cpu)
	}
}
