// Package skew compares the versions of what runs with what OPS-10.1 promises: within one minor version everything works,
// within two everything but what is newer, beyond nothing is promised.
//
// It compares names and numbers and makes no call. Start at Versions.Judge.
package skew

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// Versions are what runs, by who says so. Empty ones are not kept.
type Versions map[string]string

// Add notes the version of one process.
func (v Versions) Add(who, version string) {
	if version != "" {
		v[who] = version
	}
}

// Verdict is how far the processes are apart.
type Verdict struct {
	Minors  int      // between the oldest and the newest; Never for another major version
	Message string   // who is ahead and who behind; "" while there is one minor version
	Version string   // the oldest minor version, v1.2; "" when none can be compared
	Unknown []string // whose version is none of a release
}

// Never is a distance that no promise covers.
const Never = 1000

// Fix is what to do about a distance.
const Fix = "Upgrade one minor version at a time, everything of one before the next"

// Judge compares them all.
func (v Versions) Judge() (out Verdict) {
	by := map[string][]string{}
	for who, version := range v {
		canonical := "v" + strings.TrimPrefix(version, "v")
		if !semver.IsValid(canonical) {
			out.Unknown = append(out.Unknown, who+" ("+version+")")
			continue
		}
		minor := semver.MajorMinor(canonical)
		by[minor] = append(by[minor], who)
	}
	slices.Sort(out.Unknown)
	var minors []string
	for minor, who := range by {
		minors = append(minors, minor)
		slices.Sort(who)
	}
	semver.Sort(minors)
	if len(minors) == 0 {
		return out
	}
	low, high := minors[0], minors[len(minors)-1]
	out.Version, out.Minors = low, apart(low, high)
	if low != high {
		out.Message = fmt.Sprintf("%s runs %s, %s runs %s", strings.Join(by[high], ", "), high, strings.Join(by[low], ", "), low)
	}
	return out
}

func apart(low, high string) int {
	var major, minor, otherMajor, otherMinor int
	_, err := fmt.Sscanf(low, "v%d.%d", &major, &minor)
	_, otherErr := fmt.Sscanf(high, "v%d.%d", &otherMajor, &otherMinor)
	if err != nil || otherErr != nil || major != otherMajor {
		return Never
	}
	return otherMinor - minor
}
