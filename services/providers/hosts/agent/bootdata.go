package agent

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is one file that boot data writes.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
}

// BootData is all that boot data may ask for.
type BootData struct {
	Files   []File
	Kubelet []string // flags
}

// Where boot data may write. A reset empties both.
const (
	kubernetesDir = "/etc/kubernetes"
	dropInDir     = "/etc/systemd/system/kubelet.service.d"

	bootFilesMax = 64
	kubeletState = "/var/lib/kubelet"
)

type cloudConfig struct {
	Files []struct {
		Path        string `yaml:"path"`
		Owner       string `yaml:"owner"`
		Permissions string `yaml:"permissions"`
		Encoding    string `yaml:"encoding"`
		Content     string `yaml:"content"`
	} `yaml:"write_files"`
	Run [][]string `yaml:"runcmd"`
}

// commands are those that boot data may name. The agent runs neither: starting the kubelet is a step of its own.
var commands = [][]string{
	{"systemctl", "daemon-reload"}, {"systemctl", "enable", "--now", "kubelet"}, {"systemctl", "restart", "kubelet"}, {"systemctl", "start", "kubelet"},
}

// ParseBootData reads what an operator rendered. It is the cloud-init of the built-in template, or of a template that writes
// the same kinds of files; what asks for anything else is refused whole. Errors hold no content, because it is secret.
func ParseBootData(data []byte) (BootData, error) {
	if !bytes.HasPrefix(data, []byte("#cloud-config\n")) {
		return BootData{}, errors.New("the boot data is not a #cloud-config")
	}
	var c cloudConfig
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return BootData{}, fmt.Errorf("the boot data holds more than write_files and runcmd, or is damaged: %s", firstLine(err))
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return BootData{}, errors.New("the boot data holds more than one document")
	}
	if len(c.Files) > bootFilesMax {
		return BootData{}, fmt.Errorf("the boot data writes %d files; at most %d are allowed", len(c.Files), bootFilesMax)
	}
	for _, run := range c.Run {
		if !slices.ContainsFunc(commands, func(ok []string) bool { return slices.Equal(ok, run) }) {
			return BootData{}, fmt.Errorf("the boot data runs %.80q: an agent runs only the commands that start the kubelet", strings.Join(run, " "))
		}
	}
	var out BootData
	for _, f := range c.Files {
		file, err := fileOf(f.Path, f.Owner, f.Permissions, f.Encoding, f.Content)
		if err != nil {
			return BootData{}, err
		}
		out.Files = append(out.Files, file)
		dropIn := path.Dir(f.Path) == dropInDir
		if runsProgram(file.Content, dropIn) {
			return BootData{}, fmt.Errorf("%s is a kubeconfig that runs a program (exec): boot data carries a token or a certificate", f.Path)
		}
		if dropIn {
			if out.Kubelet, err = kubeletFlags(file.Content, out.Kubelet); err != nil {
				return BootData{}, fmt.Errorf("%s: %w", f.Path, err)
			}
		}
	}
	if out.Kubelet == nil {
		return BootData{}, fmt.Errorf("the boot data starts no kubelet: a file of %s must hold its ExecStart", dropInDir)
	}
	return out, nil
}

// runsProgram says whether a file is a kubeconfig whose user is a program that a kubelet would run. What cannot be read as one is taken for
// one if it looks like it, but for certificates and the lines of a unit, which a flag may make look so.
func runsProgram(content []byte, unit bool) bool {
	var kubeconfig struct {
		Users []struct {
			User struct {
				Exec any `yaml:"exec"`
			} `yaml:"user"`
		} `yaml:"users"`
	}
	if yaml.Unmarshal(content, &kubeconfig) != nil { // not YAML of that form; a kubelet's parser may be more lenient
		return !unit && !onlyPEM(content) && slices.ContainsFunc([]string{"exec", `\x`, `\u`}, func(mark string) bool { return bytes.Contains(content, []byte(mark)) })
	}
	for _, u := range kubeconfig.Users {
		if u.User.Exec != nil {
			return true
		}
	}
	return false
}

// onlyPEM says whether a file holds keys and certificates and nothing else.
func onlyPEM(content []byte) bool {
	content = bytes.TrimSpace(content)
	for bytes.HasPrefix(content, []byte("-----BEGIN ")) {
		block, rest := pem.Decode(content)
		if block == nil {
			return false
		}
		content = bytes.TrimSpace(rest)
	}
	return len(content) == 0
}

func firstLine(err error) string {
	for line := range strings.Lines(err.Error()) {
		if strings.Contains(line, "not found in type") { // names the key, and no value
			return strings.TrimSpace(line)
		}
	}
	return "it is not YAML of that form"
}

func fileOf(name, owner, permissions, encoding, content string) (File, error) {
	dropIn := path.Dir(name) == dropInDir && strings.HasSuffix(name, ".conf")
	if path.Clean(name) != name || !strings.HasPrefix(name, kubernetesDir+"/") && !dropIn {
		return File{}, fmt.Errorf("the boot data writes %.120q: only files below %s and %s/*.conf may be written, because a reset removes those", name, kubernetesDir, dropInDir)
	}
	if owner != "" && owner != "root:root" && owner != "root" {
		return File{}, fmt.Errorf("%s: the owner %.40q is not root", name, owner)
	}
	f := File{Path: name, Mode: 0o600}
	if permissions != "" {
		mode, err := strconv.ParseUint(permissions, 8, 32)
		if err != nil || mode > 0o777 {
			return File{}, fmt.Errorf("%s: the permissions %.20q are not an octal mode up to 0777", name, permissions)
		}
		f.Mode = fs.FileMode(mode)
	}
	switch encoding {
	case "", "text/plain":
		f.Content = []byte(content)
	case "b64", "base64":
		decoded, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			return File{}, fmt.Errorf("%s: the content is not base64", name)
		}
		f.Content = decoded
	default:
		return File{}, fmt.Errorf("%s: the encoding %.20q is neither b64 nor text/plain", name, encoding)
	}
	return f, nil
}

// kubeletFlags reads the last ExecStart of a drop-in; an empty one takes the earlier ones back, as in systemd.
func kubeletFlags(unit []byte, before []string) ([]string, error) {
	text := strings.ReplaceAll(string(unit), "\\\n", " ")
	flags := before
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		value, found := strings.CutPrefix(line, "ExecStart=")
		switch {
		case line == "", line == "[Service]", strings.HasPrefix(line, "#"), strings.HasPrefix(line, ";"):
			continue
		case !found: // such as ExecStartPre, which systemd would run
			return nil, fmt.Errorf("it holds %.80q: a drop-in may hold only [Service] and ExecStart", line)
		}
		words := strings.Fields(value)
		if len(words) == 0 {
			flags = nil
			continue
		}
		if words[0] != "/usr/bin/kubelet" {
			return nil, fmt.Errorf("ExecStart begins with %.80q, not with /usr/bin/kubelet", words[0])
		}
		for _, word := range words[1:] {
			if err := checkFlag(word); err != nil {
				return nil, err
			}
		}
		flags = words[1:]
	}
	return flags, nil
}

// directories are flags that move what a reset removes to another place.
var directories = []string{"--root-dir", "--container-runtime-endpoint", "--image-service-endpoint", "--pod-manifest-path", "--volume-plugin-dir", "--config-dir"}

// programs are flags whose files a kubelet runs.
var programs = []string{"--image-credential-provider-bin-dir", "--image-credential-provider-config"}

// takesFile says whether a flag names a file or directory, where a path that begins with no / would be one below the kubelet's own directory.
func takesFile(flag string) bool {
	return slices.ContainsFunc([]string{"config", "-conf", "-dir", "-file", "-path"}, func(end string) bool { return strings.HasSuffix(flag, end) })
}

func checkFlag(word string) error {
	name, value, joined := strings.Cut(word, "=")
	if !strings.HasPrefix(name, "--") || strings.ContainsAny(word, `"'$%;`) {
		return fmt.Errorf("%.80q is not a flag of the form --name=value without quotes and variables", word)
	}
	if slices.Contains(directories, name) || slices.Contains(programs, name) {
		return fmt.Errorf("%s is set by the host, not by boot data", name)
	}
	if joined && (strings.HasPrefix(value, "/") || value != "" && takesFile(name)) {
		inside := strings.HasPrefix(path.Clean(value)+"/", kubernetesDir+"/") || strings.HasPrefix(path.Clean(value)+"/", kubeletState+"/")
		if !inside {
			return fmt.Errorf("%s names %.120q: paths must be below %s or %s, because a reset empties those", name, value, kubernetesDir, kubeletState)
		}
	}
	return nil
}
