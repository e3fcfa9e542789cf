// Package process is the life of one role: what runs, what happens when a part is lost, in which order all of it
// stops, and the exit code.
//
// A Group runs Components. Losing a Fatal one ends the group; a Restarts one is started again with backoff; a Task may
// end by itself. When the context ends, components stop in the reverse order of Add, one after the other, within one
// total deadline. Main and Execute wrap that for a whole program: signals, the one line on stderr, the exit code.
//
// It must never decide what a failure means to a service, and never exit the process by itself: only main functions
// call os.Exit, with the code that Main or Execute returns. A Group leaves no goroutine behind unless a component
// ignores its context past the deadline, and then Run's error names it.
//
// Start at New and Group.Run; a binary's main calls Execute.
package process
