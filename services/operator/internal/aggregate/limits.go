package aggregate

// Limits of a row. They are the rules of the wire contract (section 14.1) less what the operator itself adds, so that a
// request which keeps them can never make a shard refuse the roll-up.
const (
	requirementsMax     = 63   // 64 on the wire, one of them is ours: Same
	requirementValueMax = 4096 // values of one requirement
	gangNameBytesMax    = 1024 // of a gang
	keyBytesMax         = 317  // keys of requirements, taints, topologies; names of resources
	valueBytesMax       = 253  // values of requirements and tolerations
	spreadMax           = 16   // spread constraints
	tolerationsMax      = 64   // tolerations
	resourcesMax        = 64   // resources of a request, and of a row
	preferencesMax      = 8    // preferences of a row
	preferenceTermsMax  = 16   // requirements of one

	waitingMin = 1024 // slots listed for TakeWaiting before the list is looked through
)
