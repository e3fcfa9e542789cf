package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func (p *plan) git(args ...string) (string, error) { return p.gitEnv(nil, args...) }

func (p *plan) gitEnv(env []string, args ...string) (string, error) {
	c := exec.Command("git", append([]string{"-C", p.root}, args...)...)
	c.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func (p *plan) cleanCheckout() error {
	status, err := p.git("status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		return errDirty
	}
	return nil
}

// newVersion fails when one of the tags of the release exists: a version never changes, and some of its tags would be new, some old.
func (p *plan) newVersion() error {
	tags := []string{"tag", "--list", p.version}
	for _, m := range p.modules {
		tags = append(tags, p.tagOf(m))
	}
	there, err := p.git(tags...)
	if err == nil && there != "" {
		return fmt.Errorf("%s is released, it has the tags %s: choose another version", p.version, strings.Join(strings.Fields(there), " "))
	}
	return err
}

// commitAndTag makes a commit beside HEAD whose published modules are those of tree, and tags it: once for the repository and
// once for each module. It uses an index of its own, so the checkout does not change.
func (p *plan) commitAndTag(tree string) error {
	index := filepath.Join(tree, ".index")
	env := []string{"GIT_INDEX_FILE=" + index}
	if _, err := p.gitEnv(env, "read-tree", "HEAD"); err != nil {
		return err
	}
	for _, m := range p.modules {
		for _, name := range []string{"go.mod", "go.sum"} {
			file := filepath.Join(tree, filepath.FromSlash(m.dir), name)
			if _, err := os.Stat(file); os.IsNotExist(err) {
				continue
			}
			blob, err := p.git("hash-object", "-w", file)
			if err != nil {
				return err
			}
			if _, err := p.gitEnv(env, "update-index", "--add", "--cacheinfo", "100644,"+blob+","+m.dir+"/"+name); err != nil {
				return err
			}
		}
	}
	treeID, err := p.gitEnv(env, "write-tree")
	if err != nil {
		return err
	}
	commit, err := p.git("commit-tree", treeID, "-p", "HEAD", "-m", "release "+p.version)
	if err != nil {
		return err
	}
	tags := []string{p.version}
	for _, m := range p.modules {
		tags = append(tags, p.tagOf(m))
	}
	for _, tag := range tags {
		if _, err := p.git("tag", "-a", tag, "-m", tag, commit); err != nil {
			return err
		}
	}
	fmt.Printf("commit %s with %d tags; publish them with: git push origin %s\n", commit, len(tags), strings.Join(tags, " "))
	return nil
}
