package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
)

// meant are words that people try first, and the verb that answers.
var meant = map[string]string{
	"why": "explain", "diagnose": "doctor", "check": "doctor", "health": "doctor", "info": "status", "overview": "status", "ps": "top",
	"pod": "explain pod/NAME", "pods": "explain pod/NAME", "deployment": "explain deployment/NAME", "job": "explain job/NAME", "node": "explain node/NAME", "nodes": "get machines -o wide",
	"need": "get needs", "needs": "get needs", "demand": "get needs", "list": "get", "ls": "get", "show": "describe", "inspect": "describe", "export": "get machines -o csv",
	"team": "get needs --team NAME -o wide", "teams": "get needs --team NAME -o wide", "namespace": "get needs --namespace NAME", "namespaces": "get needs --all-namespaces",
	"log": "history", "logs": "history", "audit": "get audit", "record": "history", "timeline": "history", "who": "history", "changes": "history --since 10m", "diff": "history --diff FIRST,SECOND",
	"follow": "events", "watch": "events", "price": "cost", "prices": "cost", "costs": "cost", "spend": "cost", "bill": "cost", "waste": "cost --waste", "usage": "cost --waste", "idle": "cost --waste",
	"simulate": "plan", "whatif": "plan", "what-if": "plan", "scale": "plan --scale CLUSTER=FACTOR", "quotas": "get quotas", "limits": "get quotas", "zones": "get domains",
	"stop": "pause", "halt": "pause", "freeze": "pause", "start": "resume", "unpause": "resume", "unfreeze": "resume", "continue": "resume",
	"drain": "machines drain", "evict": "machines drain", "cordon": "machines cordon", "uncordon": "machines uncordon", "retry": "machines retry", "forget": "machines forget",
	"backup": "snapshot save", "restore": "snapshot restore", "leader": "raft status", "hints": "get hints", "moves": "get moves", "install": "crds apply", "context": "config view",
	"upgrade": "version", "update": "version", "versions": "version",
	"certify": "provider conformance ADDR", "conformance": "provider conformance ADDR", "ping": "provider ping ADDR", "new": "provider init NAME", "init": "provider init NAME",
}

// meantUnder are the same under a verb that holds others.
var meantUnder = map[string]string{"provider certify": "conformance", "provider check": "ping", "provider new": "init", "provider create": "init", "provider test": "conformance",
	"machines evict": "drain", "machines remove": "drain", "machines delete": "drain", "quota create": "set", "quota add": "set", "quota remove": "delete"}

func unknown(c *cobra.Command, name string) error {
	hint := "`bigfleet --help` lists the commands"
	if verb := meant[strings.ToLower(name)]; verb != "" && !c.HasParent() {
		hint = "Did you mean `bigfleet " + verb + "`?"
	} else if near := c.SuggestionsFor(name); len(near) > 0 {
		hint = "Did you mean `bigfleet " + strings.Join(near, "` or `bigfleet ") + "`?"
	}
	return &exit.Error{Code: exit.Usage, Message: fmt.Sprintf("there is no command %q", name), Hint: hint}
}

// nearestVerb makes the verbs that hold others suggest one of them for a word that none has.
func nearestVerb(root *cobra.Command) {
	for _, group := range root.Commands() {
		check := group.Args
		if !group.HasSubCommands() || check == nil {
			continue
		}
		group.SuggestionsMinimumDistance = root.SuggestionsMinimumDistance
		group.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err == nil || len(args) == 0 {
				return err
			}
			verb := meantUnder[c.Name()+" "+strings.ToLower(args[0])]
			if near := c.SuggestionsFor(args[0]); verb == "" && len(near) > 0 {
				verb = near[0]
			}
			if verb == "" {
				return err
			}
			return &exit.Error{Code: exit.Usage, Message: fmt.Sprintf("%s has no verb %q", c.CommandPath(), args[0]), Hint: fmt.Sprintf("Did you mean `%s %s`?", c.CommandPath(), verb)}
		}
	}
}

// meantFlags are flags that people try at a verb that answers otherwise, or whose answer another verb has.
var meantFlags = map[string]string{
	"cost --team": "`bigfleet get needs --team NAME -o wide` shows what each need of a team costs", "cost --namespace": "`bigfleet get needs --namespace NAME -o wide` shows what each need of a namespace costs",
	"cost --cluster": "`bigfleet cost` has a row for each cluster, and `bigfleet describe cluster/NAME` shows one", "status --cluster": "`bigfleet describe cluster/NAME` shows one cluster",
	"top --cluster": "`bigfleet get needs --cluster NAME --watch` follows one cluster", "get --deployment": "`bigfleet explain deployment/NAME` traces a Deployment to its needs",
	"plan --zone": "`bigfleet plan --drain-zone ZONE` plans without a zone", "machines drain --rack": "`-l LABEL=VALUE` selects Nodes by a label, for example topology.kubernetes.io/rack=r7",
	"wait --within": "`--timeout DURATION` says for how long", "history --machine": "`bigfleet history machine/NAME` shows one machine", "history --cluster": "`bigfleet history cluster/NAME` shows one cluster",
}

// unknownFlag words cobra's refusal of a flag, with the flag or the verb that was meant, if there is one.
func unknownFlag(c *cobra.Command, err error) error {
	out := &exit.Error{Code: exit.Usage, Message: err.Error(), Hint: fmt.Sprintf("`%s --help` shows the flags", c.CommandPath())}
	name, is := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !is {
		return out
	}
	var names []string
	part := ""
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names = append(names, f.Name)
		for _, word := range strings.Split(f.Name, "-") {
			for _, given := range strings.Split(name, "-") {
				if part == "" && word == given && len(word) > 3 {
					part = f.Name
				}
			}
		}
	})
	path := strings.TrimPrefix(c.CommandPath(), c.Root().CommandPath()+" ")
	if hint := meantFlags[path+" --"+name]; hint != "" {
		out.Hint = hint
	} else if near := fleet.Nearest(name, names); near != "" {
		out.Hint = "Did you mean --" + near + "? " + out.Hint
	} else if part != "" {
		out.Hint = "Did you mean --" + part + "? " + out.Hint
	}
	return out
}
