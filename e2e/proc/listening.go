package proc

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const listening = "0A" // the state of a socket in /proc/net/tcp that accepts connections

// Listening lists the TCP addresses on which the process accepts connections, sorted.
func (p *Process) Listening() (out []string, err error) {
	dir := fmt.Sprintf("/proc/%d", p.PID())
	fds, err := filepath.Glob(dir + "/fd/*")
	if err != nil {
		return nil, err
	}
	mine := map[string]bool{}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // closed meanwhile
			return nil, err
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		file, err := os.Open(dir + "/net/" + table)
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			f := strings.Fields(lines.Text()) // sl local_address rem_address st queues timer retransmissions uid timeout inode
			if len(f) < 10 || f[3] != listening || !mine[f[9]] {
				continue
			}
			address, err := socketAddress(f[1])
			if err != nil {
				return nil, errors.Join(err, file.Close())
			}
			out = append(out, address)
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
	slices.Sort(out)
	return out, nil
}

// socketAddress reads an address of /proc/net/tcp: words in the byte order of this machine, which is little endian, and a port.
func socketAddress(text string) (string, error) {
	host, port, _ := strings.Cut(text, ":")
	ip, err := hex.DecodeString(host)
	if err != nil || len(ip)%4 != 0 {
		return "", fmt.Errorf("%q is not an address", text)
	}
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return "", fmt.Errorf("%q has no port", text)
	}
	return net.JoinHostPort(net.IP(ip).String(), strconv.FormatUint(n, 10)), nil
}
