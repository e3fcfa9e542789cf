package operator

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// calls are the requests that the programs under test made to the API server.
type calls struct {
	mu      sync.Mutex
	list    []call
	refused []string
	slow    func(r *http.Request) // called before each request; nil: nothing
	broken  func(r *http.Request) error
}

type call struct {
	who, verb, resource, name string
	status                    int
}

// counter counts the requests of one program.
type counter struct {
	next http.RoundTripper
	to   *calls
	who  string
}

var apiPath = regexp.MustCompile(`^/(?:api/[^/]+|apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?$`)

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.to.mu.Lock()
	slow, broken := c.to.slow, c.to.broken
	c.to.mu.Unlock()
	if slow != nil {
		slow(r)
	}
	if broken != nil {
		if err := broken(r); err != nil {
			return nil, err
		}
	}
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	k := call{who: c.who, verb: strings.ToLower(r.Method), status: answer.StatusCode}
	if m := apiPath.FindStringSubmatch(r.URL.Path); m != nil {
		k.resource, k.name = m[2], m[3]
		if m[4] != "" {
			k.resource += "/" + m[4]
		}
	}
	if r.URL.Query().Get("watch") != "" {
		k.verb = "watch"
	}
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	c.to.list = append(c.to.list, k)
	if answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized {
		c.to.refused = append(c.to.refused, fmt.Sprintf("%s: %s %s: %s", c.who, r.Method, r.URL.Path, answer.Status))
	}
	return answer, nil
}

func (c *calls) forbidden() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.refused)
}

// mark is the number of requests so far, for since.
func (c *calls) mark() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list)
}

// writes counts the writes after a mark by "verb resource".
func (c *calls) writes(mark int) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for _, k := range c.list[mark:] {
		if k.verb != "get" && k.verb != "watch" {
			out[k.verb+" "+k.resource]++
		}
	}
	return out
}

// of counts one kind of request after a mark.
func (c *calls) of(mark int, verb, resource string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, k := range c.list[mark:] {
		if k.verb == verb && k.resource == resource {
			n++
		}
	}
	return n
}

// once calls f before the next request of a kind passes.
func (c *calls) once(verb, resource string, f func()) {
	var done sync.Once
	c.interfere(func(r *http.Request) {
		if m := apiPath.FindStringSubmatch(r.URL.Path); m != nil && m[2] == resource && m[3] == "" && strings.EqualFold(r.Method, verb) {
			done.Do(f)
		}
	}, nil)
}

// interfere sets what happens before each request.
func (c *calls) interfere(slow func(*http.Request), broken func(*http.Request) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow, c.broken = slow, broken
}
