// Command child is a program with the habits, good and bad, that the tests of package proc need.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	serve := flag.String("serve", "", "address of an HTTP server that answers 200 on every path")
	say := flag.String("say", "", "a line for the log")
	stubborn := flag.Bool("stubborn", false, "ignore SIGTERM")
	spawn := flag.Bool("spawn", false, "start a grandchild that sleeps and print its process id")
	write := flag.String("write", "", "append to this file without end, from four threads")
	exit := flag.Int("exit", -1, "exit at once with this status")
	flag.Parse()

	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Println("pid", os.Getpid(), "greeting", os.Getenv("GREETING"))
	if *say != "" {
		fmt.Fprintln(os.Stderr, *say)
	}
	if *exit >= 0 {
		os.Exit(*exit)
	}
	if *spawn {
		sleep := exec.Command("sleep", "300")
		if err := sleep.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("grandchild", sleep.Process.Pid)
	}
	if *serve != "" {
		go func() {
			err := http.ListenAndServe(*serve, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			fmt.Println(err)
			os.Exit(1)
		}()
	}
	if *write != "" {
		file, err := os.OpenFile(*write, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for range 4 {
			go func() {
				for {
					if _, err := file.WriteString("x"); err != nil {
						fmt.Println(err)
						os.Exit(1)
					}
				}
			}()
		}
	}
	fmt.Println("up")
	for range term {
		if !*stubborn {
			fmt.Println("bye")
			return
		}
	}
}
