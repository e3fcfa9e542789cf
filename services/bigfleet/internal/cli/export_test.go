package cli

// LiveWord says whether an argument of this name completes.
func LiveWord(word string) bool { return live[word] != "" || word == "CONTEXT" }
