package stack
