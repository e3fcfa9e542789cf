package cli

// LiveWord says whether an argument of this name completes.
func LiveWord(word string) bool { return live[word] != "" || word == "CONTEXT" }

// LiveFlag is the kind of name that a flag takes, or nothing.
func LiveFlag(flag string) string { return liveFlags[flag] }

// Bare takes the kinds off the names of one call.
var Bare = bareNames

// PrintedKind is the kind that -o name prints before names of this kind.
var PrintedKind = printedKind

// Printed is a name as -o name prints it for an argument of this name, or nothing where the argument is no name.
func Printed(word, name string) string {
	if live[word] == "" {
		return ""
	}
	return PrintedKind(live[word]) + "/" + name
}
