package replica

import (
	"strconv"

	"github.com/hashicorp/raft"
)

// admit lets Raft judge a candidate that its own configuration does not know as a voter. Raft refuses such a candidate. If the old
// leader made it a voter with an entry that reached only the candidate, no replica could then be elected: this replica has the older
// log, and the candidate lacks its vote. The vote goes by the log alone: a candidate whose log is newer may know a newer
// configuration. One that was removed or lost its vote has no newer log than those who stored that, and stays refused.
func (n *Node) admit(call raft.RPC) {
	var header *raft.RPCHeader
	var index, term uint64
	switch c := call.Command.(type) {
	case *raft.RequestPreVoteRequest:
		header, index, term = &c.RPCHeader, c.LastLogIndex, c.LastLogTerm
	case *raft.RequestVoteRequest:
		header, index, term = &c.RPCHeader, c.LastLogIndex, c.LastLogTerm
	default:
		return
	}
	r := n.started.Load()
	if r == nil || len(header.ID) == 0 {
		return
	}
	voter := ""
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		if voter = string(s.ID); voter == string(header.ID) {
			return
		}
	}
	if voter == "" || !newer(index, term, r.Stats()) {
		return
	}
	n.config.Log.Info("a candidate is not a voter in this replica's configuration; its request is considered because its log is newer", "candidate", string(header.ID))
	// Raft reads the id for this check alone. Votes are counted and stored by address.
	header.ID = []byte(voter)
}

// newer reports whether a candidate's last entry is newer than the last one of this replica.
func newer(index, term uint64, own map[string]string) bool {
	ownIndex, errIndex := strconv.ParseUint(own["last_log_index"], 10, 64)
	ownTerm, errTerm := strconv.ParseUint(own["last_log_term"], 10, 64)
	return errIndex == nil && errTerm == nil && (term > ownTerm || term == ownTerm && index > ownIndex)
}
