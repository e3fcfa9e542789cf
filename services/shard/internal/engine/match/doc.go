// Package match says which machines a need can use, and what they supply to it.
//
// Machines that are alike form a class (inventory). A Matcher answers for a class whether its labels and taints satisfy a
// profile (ENG-6). A Projection is the supply of each class in the dimensions that a cluster asks for (ENG-3.6). Units are the
// whole multiples of a min unit (ENG-4.12). A Catalog holds all of these and keeps them up to date with the tables.
//
// It knows classes and profiles only: what is free, claimed or planned is the planner's. ProjectionOf and Known are for
// concurrent use, everything else is not.
package match
