//go:build linux

// Command nodehost is a Linux host of its own as far as a container runtime and a kubelet can tell: its processes, mounts, host
// name and network are its own, /etc, /var, /opt and /run are private, and everything in it ends with this process.
//
//	nodehost DIR NAME
//
// DIR keeps what is written; DIR/pid holds the process id of the first process in it, once it is ready. It needs root.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3:
		err = outer(os.Args[1], os.Args[2])
	case len(os.Args) == 4 && os.Args[3] == "inside":
		err = inner(os.Args[1], os.Args[2])
	default:
		err = fmt.Errorf("usage: nodehost DIR NAME")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodehost:", err)
		os.Exit(1)
	}
}

// outer starts the first process of the host and lives as long as it.
func outer(dir, name string) error {
	ready, isReady, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", dir, name, "inside")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{isReady}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = isReady.Close()
	if n, _ := ready.Read(make([]byte, 1)); n == 1 {
		file := filepath.Join(dir, "pid") // is there whole or not at all
		if err := os.WriteFile(file+".new", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			return err
		}
		if err := os.Rename(file+".new", file); err != nil {
			return err
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-stop
		_ = cmd.Process.Kill() // the kernel ends the rest of the host with it
	}()
	return cmd.Wait()
}

// inner makes the host and then does what the first process of a machine must: it takes the exit codes of orphans.
func inner(dir, name string) error {
	if err := mountAll(dir); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	orphans := make(chan os.Signal, 64)
	signal.Notify(orphans, syscall.SIGCHLD)
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if _, err := os.NewFile(3, "ready").Write([]byte{1}); err != nil {
		return err
	}
	for range orphans {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func mountAll(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, top := range []string{"etc", "var", "opt"} {
		upper, work := filepath.Join(dir, "upper-"+top), filepath.Join(dir, "work-"+top)
		for _, d := range []string{upper, work, "/" + top} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		options := fmt.Sprintf("lowerdir=/%s,upperdir=%s,workdir=%s", top, upper, work)
		if err := unix.Mount("overlay", "/"+top, "overlay", 0, options); err != nil {
			return fmt.Errorf("overlay on /%s: %w", top, err)
		}
	}
	// Snapshots and volumes cannot lie on an overlay.
	for _, d := range []string{"/var/lib/containerd", "/var/lib/kubelet"} {
		real := filepath.Join(dir, filepath.Base(d))
		for _, one := range []string{real, d} {
			if err := os.MkdirAll(one, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(real, d, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", d, err)
		}
	}
	if err := unix.Mount("", "/var/lib/kubelet", "", unix.MS_SHARED, ""); err != nil { // as systemd has it: volumes are seen by containers
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("/run: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	return nil
}
