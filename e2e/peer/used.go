package main

import (
	"bufio"
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// use is what a side has used since its processes began, and what was written at the API server since that began.
type use struct {
	processor time.Duration
	memory    int64
	writes    int // by all clients: kube-scheduler, the controllers and the user write the same on both sides
	evictions int // that succeeded
}

func (t *turn) used(ctx context.Context) (u use, err error) {
	for _, p := range t.s.processes() {
		d, err := p.CPUTime()
		if err != nil {
			return u, err
		}
		m, err := p.PeakResidentBytes()
		if err != nil {
			return u, err
		}
		u.processor, u.memory = u.processor+d, u.memory+m
	}
	body, err := t.c.Client().Discovery().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return u, err
	}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(line, name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		n, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err != nil || !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, label("verb")) || label("resource") == "leases" {
			continue
		}
		u.writes += int(n)
		if label("subresource") == "eviction" && strings.HasPrefix(label("code"), "2") {
			u.evictions += int(n)
		}
	}
	return u, lines.Err()
}
