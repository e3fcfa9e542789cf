package translate

// Decision says what BigFleet does with a field of a Pod that kube-scheduler may read.
type Decision string

// The decisions. A field that is not Unread changes what is bought, or its owner hears that it does not.
const (
	Exact       Decision = "exact"       // capacity is what the scheduler needs
	Approximate Decision = "approximate" // counted in part; an event or this table says how
	Refused     Decision = "refused"     // a pending Pod asks for nothing, and an event names the field
	Unread      Decision = "unread"      // kube-scheduler does not place by it
)

// Field is one decision. Its path covers everything below it that has no decision of its own.
type Field struct {
	Path     string
	Decision Decision
	How      string
	Test     string // that shows it
}

// Fields are the decisions on all fields of a PodSpec (OP-15.28). docs/clusters.md shows those that the scheduler reads.
func Fields() []Field {
	const anti = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	const required = "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	out := []Field{
		{"containers.resources", Exact, "the scheduler's own sum, with init containers, sidecars and resizes", "TestResourcesAreTheSchedulers"},
		{"initContainers.resources", Exact, "as above", "TestResourcesAreTheSchedulers"},
		{"resources", Exact, "requests of the whole Pod count in the place of its containers'", "TestResourcesAreTheSchedulers"},
		{"overhead", Exact, "added to the requests", "TestResourcesAreTheSchedulers"},
		{"containers.ports", Approximate, "a host port is a limit of one Pod per host among Pods with equal constraints and requests; port numbers are not compared", "TestPerHost"},
		{"initContainers.ports", Approximate, "as above", "TestPerHost"},
		{"nodeSelector", Exact, "a requirement each", "TestRequirements"},
		{"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution", Approximate,
			"one term, or several that differ in the values of one key, is exact, with every operator; others are tried one after the other, with event CapacityReduced", "TestAlternativesTakeTurns"},
		{"affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", Approximate,
			"decides between machines that cost the same, up to 8 terms by weight; not for members of a gang, and not by field or hostname", "TestPreferences"},
		{required, Approximate, "the first term makes a gang, and once Pods run that it selects, only machines in their domains count (not on kubernetes.io/hostname, nor by labels of namespaces); an event names further ones", "TestTheRest"},
		{"affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution", Approximate, "not counted: it never keeps a Pod from running", "TestFieldsBeyondRequests"},
		{anti, Approximate, "against the Pod's own peers: on kubernetes.io/hostname a limit of one Pod per host among Pods with equal constraints and requests, on another key a spread with one Pod in each domain; against others on kubernetes.io/hostname, a Pod that kube-scheduler keeps waiting for a host without them gets one more machine; an event names what is not against its peers", "TestPerHost"},
		{"affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution", Approximate, "not counted: it never keeps a Pod from running", "TestFieldsBeyondRequests"},
		{"topologySpreadConstraints.topologyKey", Approximate, "of DoNotSchedule constraints; kubernetes.io/hostname is a limit of maxSkew Pods per host, never fewer machines than kube-scheduler needs and perhaps more; of other keys the first counts, by Pods and in whichever order they come, and Pods that kube-scheduler then keeps waiting for any of them get one more machine", "TestSpreadOverHosts"},
		{"topologySpreadConstraints.maxSkew", Exact, "of DoNotSchedule constraints", "TestTheRest"},
		{"topologySpreadConstraints.whenUnsatisfiable", Exact, "ScheduleAnyway never keeps a Pod from running", "TestTheRest"},
		{"topologySpreadConstraints.labelSelector", Approximate, "Pods of one namespace with equal selectors, constraints and requests share one skew; it is assumed to select the Pod itself", "TestSpreadOverDomains"},
		{"topologySpreadConstraints.matchLabelKeys", Approximate, "as above, with the labels of the Pod", "TestSpreadOverDomains"},
		{"topologySpreadConstraints.minDomains", Exact, "of the keys that count", "TestSpreadOverDomains"},
		{"topologySpreadConstraints.nodeAffinityPolicy", Approximate, "Honor is assumed; an event names another", "TestTheRest"},
		{"topologySpreadConstraints.nodeTaintsPolicy", Approximate, "Honor is assumed: a domain does not count if each of its machines has a taint that is not tolerated", "TestTheRest"},
		{"tolerations", Exact, "Equal and Exists; another operator makes the request invalid, and its condition Valid says so. Of machines that cost the same, those without a PreferNoSchedule taint that is not tolerated are bought", "TestTheRest"},
		{"priority", Exact, "the order in which demand is met", "TestTheRest"},
		{"preemptionPolicy", Exact, "Never preempts nothing", "TestPerHost"},
		{"nodeName", Exact, "a bound Pod requests the node that it runs on, if that node is a machine of BigFleet", "TestForeignNodes"},
		{"schedulingGates", Exact, "a gated Pod requests nothing", "TestWhy"},
		{"resourceClaims", Approximate, "an exact number of devices of a DeviceClass is an amount of the machine, and a selector that compares attributes with == selects its labels; a Pod whose claims say anything else, or share devices, requests nothing, and an event names the field", "TestClaims"},
		{"schedulingGroup", Approximate, "Pods of a PodGroup with a gang policy get capacity together or not at all, in one value of its first topology key; its Pods with other constraints are a gang of their own; an event names a group that cannot be read", "TestForms"},
		{"volumes", Approximate, "where a bound volume, or the class of one that waits for its Pod, can be is a requirement; a Pod with a missing or unbound claim requests nothing; volumes count against what CSI drivers attach to a Node of the type, once one has joined; a volume that Pods share counts for each", "TestVolumes"},
		{"schedulerName", Exact, "Pods of every scheduler request capacity; after 30 s also those whose scheduler reports nothing", "TestForeignNodes"},
	}
	for _, path := range []string{
		"activeDeadlineSeconds", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC",
		"hostNetwork", "hostPID", "hostUsers", "hostname", "hostnameOverride", "imagePullSecrets", "os", "priorityClassName", "readinessGates", "restartPolicy",
		"runtimeClassName", "securityContext", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
		"terminationGracePeriodSeconds",
	} {
		out = append(out, Field{Path: path, Decision: Unread})
	}
	for _, list := range []string{"containers.", "initContainers."} {
		for _, path := range []string{
			"args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name", "readinessProbe", "resizePolicy",
			"restartPolicyRules", "securityContext", "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty",
			"volumeDevices", "volumeMounts", "workingDir",
		} {
			out = append(out, Field{Path: list + path, Decision: Unread})
		}
	}
	return append(out, Field{"initContainers.restartPolicy", Exact, "a sidecar's requests last as long as the Pod", "TestResourcesAreTheSchedulers"},
		Field{Path: "containers.restartPolicy", Decision: Unread})
}
