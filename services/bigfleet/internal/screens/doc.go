// Package screens holds what people see at 80 and at 200 columns, of a shard and a cloud in virtual time, as files that a test compares.
package screens
