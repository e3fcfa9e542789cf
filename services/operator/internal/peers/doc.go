// Package peers knows in which topology domains the Pods run that other Pods must be near (OP-5.31).
//
// An Index follows terms, each a selector of Pods and a topology key, and answers with the values of the key on the nodes on which
// selected Pods run. Pods are grouped by namespace and labels, and terms are found by a label that they demand, so that a change of a Pod
// costs a look at its labels, and a new term one look at each group. Without terms it holds nothing.
//
// It decides nothing about demand. Start at Index.
package peers
