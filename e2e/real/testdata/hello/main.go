// Command hello is the image of the tests: it says where it runs, or sleeps as the first container of a Pod.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) > 1 && os.Args[1] == "pause" {
		<-stop
		return
	}
	go func() { <-stop; os.Exit(0) }()
	name, _ := os.Hostname()
	err := http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello from %s in %s\n", name, os.Getenv("CLUSTER"))
	}))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
