package operator

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/e2e/charts"
)

// calls are the requests that the programs under test made to the API server.
type calls struct {
	mu      sync.Mutex
	list    []call
	refused []string
	starts  bool                  // the API server starts: it refuses all calls until it knows the roles
	slow    func(r *http.Request) // called before each request; nil: nothing
	broken  func(r *http.Request) error
}

type call struct {
	who, verb, group, resource, name string
	status                           int
}

// right is the verb, the resource and the API group that a call needs, as a rule of RBAC has them.
func (c call) right() string {
	verb := map[string]string{"post": "create", "put": "update"}[c.verb]
	switch {
	case verb != "":
	case c.verb == "get" && c.name == "":
		verb = "list"
	case c.verb == "delete" && c.name == "":
		verb = "deletecollection"
	default:
		verb = c.verb
	}
	return strings.TrimSuffix(c.resource+"."+c.group, ".") + " " + verb
}

// counter counts the requests of one program.
type counter struct {
	next http.RoundTripper
	to   *calls
	who  string
}

var apiPath = regexp.MustCompile(`^/(?:api/[^/]+|apis/([^/]+)/[^/]+)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?$`)

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
		k.group, k.resource, k.name = m[1], m[3], m[4]
		if m[5] != "" {
			k.resource += "/" + m[5]
		}
	}
	if r.URL.Query().Get("watch") != "" {
		k.verb = "watch"
	}
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	c.to.list = append(c.to.list, k)
	if k.resource != "" {
		everUsed.note(c.who, k.right())
	}
	if !c.to.starts && answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized {
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

// of counts one kind of request after a mark; with names, only those of these objects.
func (c *calls) of(mark int, verb, resource string, names ...string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, k := range c.list[mark:] {
		if k.verb == verb && k.resource == resource && (len(names) == 0 || slices.Contains(names, k.name)) {
			n++
		}
	}
	return n
}

// once calls f before the next request of a kind passes.
func (c *calls) once(verb, resource string, f func()) {
	var done sync.Once
	c.interfere(func(r *http.Request) {
		if m := apiPath.FindStringSubmatch(r.URL.Path); m != nil && m[3] == resource && m[4] == "" && strings.EqualFold(r.Method, verb) {
			done.Do(f)
		}
	}, nil)
}

// starting says that refusals mean nothing now: an API server that starts refuses all calls until it knows the roles.
func (c *calls) starting(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts = yes
}

// interfere sets what happens before each request.
func (c *calls) interfere(slow func(*http.Request), broken func(*http.Request) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow, c.broken = slow, broken
}

// rights are what the programs used of the chart's rules, over all tests of this package.
type rights struct {
	mu   sync.Mutex
	used map[string]bool // program and right
}

// rarely are rights that no test can wait for, with the reason.
var rarely = map[string]string{
	"bigfleet-operator: events patch":                                "an event is counted when it repeats after five minutes (OP-14.3)",
	"bigfleet-pod-controller: events patch":                          "as above",
	"bigfleet-operator: availablecapacities.bigfleet.lucy.sh delete": "hints end ten minutes after the shard withdrew them (OP-13.4)",
}

var everUsed = &rights{used: map[string]bool{}}

func (r *rights) note(who, right string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used[who+": "+right] = true
}

// unused lists the rights that the charts grant and nothing ever used.
func (r *rights) unused(ctx context.Context) (out []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, release := range charted() {
		render, err := charts.Render(ctx, release)
		if err != nil {
			return nil, err
		}
		for doc := range strings.SplitSeq(string(render), "\n---\n") {
			var role rbacv1.Role
			if yaml.Unmarshal([]byte(doc), &role) != nil || role.Kind != "Role" && role.Kind != "ClusterRole" {
				continue
			}
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "" { // for people, not for the program
				continue
			}
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							what := release.Name + ": " + strings.TrimSuffix(resource+"."+group, ".") + " "
							// API servers that cannot stream a first listing are listed instead of watched.
							if verb == "list" && r.used[what+"watch"] {
								continue
							}
							if !r.used[what+verb] && rarely[what+verb] == "" {
								out = append(out, what+verb)
							}
						}
					}
				}
			}
		}
	}
	return out, nil
}
