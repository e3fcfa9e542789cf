package aws

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	savingstypes "github.com/aws/aws-sdk-go-v2/service/savingsplans/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"
)

// onNetwork is the model of AWS behind HTTP: requests are read as AWS reads them, and answers are those of testdata/answers.tmpl. So the
// client of AWS's own SDK, its signatures and its readers of answers are part of what is tested.
type onNetwork struct {
	t   *testing.T
	m   *model
	url string

	mu    sync.Mutex
	calls []called
	// fault answers a call instead of the model, or cuts the connection after the model did its work. Nil: none.
	fault    func(name string) *httpFault
	now      map[string]int // calls in flight by name
	together map[string]int // the most that were
}

// called is one request that arrived.
type called struct {
	name, region string
	at           time.Time
	form         url.Values
}

// httpFault is how a call goes wrong on the network.
type httpFault struct {
	status int
	body   string
	cut    bool // the work is done, and the answer gets lost
	half   bool // the work is done, and half of the answer arrives
}

var answers = template.Must(template.New("").Funcs(template.FuncMap{
	"xml": func(p any) (string, error) {
		var b bytes.Buffer
		err := xml.EscapeText(&b, []byte(textOf(p)))
		return b.String(), err
	},
	"json": func(v any) (string, error) {
		if p, ok := v.(*string); ok {
			v = awssdk.ToString(p)
		}
		text, err := json.Marshal(v)
		return string(text), err
	},
	"md5": func(p *string) string { sum := md5.Sum([]byte(*p)); return hex.EncodeToString(sum[:]) },
}).ParseFiles("testdata/answers.tmpl"))

func textOf(p any) string {
	if s, ok := p.(*string); ok {
		return awssdk.ToString(s)
	}
	return fmt.Sprint(p)
}

// putOnNetwork serves the model, and lets the SDK of AWS find it as it finds AWS: by its environment.
func putOnNetwork(t *testing.T, m *model) *onNetwork {
	n := &onNetwork{t: t, m: m, now: map[string]int{}, together: map[string]int{}}
	s := httptest.NewServer(n)
	t.Cleanup(s.Close)
	n.url = s.URL
	return n
}

func (n *onNetwork) environment() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL": n.url, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "example", "AWS_REGION": n.m.region, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_PROFILE": "",
	}
}

// dialed is what the provider dials.
func (n *onNetwork) dialed(region string) cloud {
	n.t.Helper()
	for k, v := range n.environment() {
		n.t.Setenv(k, v)
	}
	c, err := dial(n.t.Context(), region)
	must(n.t, err)
	return c
}

// scope is the region and the service in the signature of a request.
var scope = regexp.MustCompile(`Credential=AKIDEXAMPLE/\d{8}/([a-z0-9-]+)/([a-z0-9]+)/aws4_request`)

func (n *onNetwork) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	signed := scope.FindStringSubmatch(r.Header.Get("Authorization"))
	if err != nil || signed == nil {
		n.t.Errorf("a request that is not signed: %v, %q", err, r.Header.Get("Authorization"))
		return
	}
	form, err := url.ParseQuery(string(body))
	service, action := signed[2], form.Get("Action")
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		action = target[strings.LastIndexByte(target, '.')+1:]
	} else if service == "savingsplans" {
		action = strings.Trim(r.URL.Path, "/")
	} else if err != nil {
		n.t.Errorf("a request of %s that is no form: %v", service, err)
	}
	name := service + "." + action
	fault := n.arrived(called{name, signed[1], time.Now(), form})
	defer n.left(name)
	if fault != nil && !fault.cut && !fault.half {
		w.WriteHeader(fault.status)
		_, _ = io.WriteString(w, fault.body)
		return
	}
	out, err := n.work(r.Context(), name, form, body)
	var answer bytes.Buffer
	kind := ".json"
	if service == "ec2" {
		kind = ".xml"
	}
	if failed, ok := errors.AsType[*smithy.GenericAPIError](err); ok {
		w.WriteHeader(http.StatusBadRequest)
		err = answers.ExecuteTemplate(&answer, "error"+kind, failed)
	} else if err == nil {
		err = answers.ExecuteTemplate(&answer, name, out)
	}
	if err != nil {
		if r.Context().Err() == nil { // a caller that is gone hears no answer
			n.t.Errorf("%s: %v", name, err)
		}
		return
	}
	text := answer.Bytes()
	if fault != nil && fault.cut {
		panic(http.ErrAbortHandler)
	}
	if fault != nil && fault.half {
		text = text[:len(text)/2]
	}
	_, _ = w.Write(text)
}

func (n *onNetwork) arrived(c called) *httpFault {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, c)
	n.now[c.name]++
	n.together[c.name] = max(n.together[c.name], n.now[c.name])
	if n.fault == nil {
		return nil
	}
	return n.fault(c.name)
}

func (n *onNetwork) left(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now[name]--
}

// of are the requests of one name.
func (n *onNetwork) of(name string) (out []called) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.calls {
		if c.name == name {
			out = append(out, c)
		}
	}
	return out
}

// most is how many calls of a name were in flight together.
func (n *onNetwork) most(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.together[name]
}

// names are the calls that were made.
func (n *onNetwork) names() (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.calls {
		out = append(out, c.name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// words are the values of a list in a form: Name.1, Name.2.
func words(form url.Values, name string) (out []string) {
	for i := 1; form.Has(name + "." + strconv.Itoa(i)); i++ {
		out = append(out, form.Get(name+"."+strconv.Itoa(i)))
	}
	return out
}

func formValue(form url.Values, name string) *string { return some(form.Get(name)) }

func tagsOf(form url.Values, name string) (out []types.Tag) {
	for i := 1; form.Has(fmt.Sprintf("%s.%d.Key", name, i)); i++ {
		at := fmt.Sprintf("%s.%d.", name, i)
		out = append(out, types.Tag{Key: awssdk.String(form.Get(at + "Key")), Value: awssdk.String(form.Get(at + "Value"))})
	}
	return out
}

func tagSpecs(form url.Values) (out []types.TagSpecification) {
	for i := 1; form.Has(fmt.Sprintf("TagSpecification.%d.ResourceType", i)); i++ {
		at := fmt.Sprintf("TagSpecification.%d.", i)
		out = append(out, types.TagSpecification{ResourceType: types.ResourceType(form.Get(at + "ResourceType")), Tags: tagsOf(form, at+"Tag")})
	}
	return out
}

func filtersOf(form url.Values) (out []types.Filter) {
	for i := 1; form.Has(fmt.Sprintf("Filter.%d.Name", i)); i++ {
		at := fmt.Sprintf("Filter.%d.", i)
		out = append(out, types.Filter{Name: formValue(form, at+"Name"), Values: words(form, at+"Value")})
	}
	return out
}

func typesIn(form url.Values) (out []types.InstanceType) {
	for _, one := range words(form, "InstanceType") {
		out = append(out, types.InstanceType(one))
	}
	return out
}

// work reads a request and lets the model answer.
func (n *onNetwork) work(ctx context.Context, name string, f url.Values, body []byte) (any, error) {
	m := n.m
	switch name {
	case "ec2.CreateFleet":
		const config, override = "LaunchTemplateConfigs.1.LaunchTemplateSpecification.", "LaunchTemplateConfigs.1.Overrides.1."
		return m.CreateFleet(ctx, &ec2.CreateFleetInput{
			ClientToken: formValue(f, "ClientToken"), TagSpecifications: tagSpecs(f),
			LaunchTemplateConfigs: []types.FleetLaunchTemplateConfigRequest{{
				LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: formValue(f, config+"LaunchTemplateName"), LaunchTemplateId: formValue(f, config+"LaunchTemplateId")},
				Overrides: []types.FleetLaunchTemplateOverridesRequest{{
					InstanceType: types.InstanceType(f.Get(override + "InstanceType")), AvailabilityZone: formValue(f, override+"AvailabilityZone"), SubnetId: formValue(f, override+"SubnetId"),
				}},
			}},
			TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{
				DefaultTargetCapacityType: types.DefaultTargetCapacityType(f.Get("TargetCapacitySpecification.DefaultTargetCapacityType")),
			},
		})
	case "ec2.RunInstances":
		in := &ec2.RunInstancesInput{
			ClientToken: formValue(f, "ClientToken"), InstanceType: types.InstanceType(f.Get("InstanceType")), TagSpecifications: tagSpecs(f), SubnetId: formValue(f, "SubnetId"),
			CapacityReservationSpecification: &types.CapacityReservationSpecification{CapacityReservationTarget: &types.CapacityReservationTarget{
				CapacityReservationId: formValue(f, "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"),
			}},
		}
		if f.Has("Placement.AvailabilityZone") {
			in.Placement = &types.Placement{AvailabilityZone: formValue(f, "Placement.AvailabilityZone")}
		}
		return m.RunInstances(ctx, in)
	case "ec2.DescribeInstances":
		return m.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filtersOf(f), NextToken: formValue(f, "NextToken")})
	case "ec2.DescribeInstanceStatus":
		return m.DescribeInstanceStatus(ctx, nil)
	case "ec2.StartInstances":
		return m.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: words(f, "InstanceId")})
	case "ec2.StopInstances":
		return m.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: words(f, "InstanceId")})
	case "ec2.TerminateInstances":
		return m.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: words(f, "InstanceId")})
	case "ec2.CreateTags":
		return m.CreateTags(ctx, &ec2.CreateTagsInput{Resources: words(f, "ResourceId"), Tags: tagsOf(f, "Tag")})
	case "ec2.DeleteTags":
		return m.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: words(f, "ResourceId"), Tags: tagsOf(f, "Tag")})
	case "ec2.CreateReplaceRootVolumeTask":
		return m.CreateReplaceRootVolumeTask(ctx, &ec2.CreateReplaceRootVolumeTaskInput{InstanceId: formValue(f, "InstanceId"), ClientToken: formValue(f, "ClientToken")})
	case "ec2.DescribeReplaceRootVolumeTasks":
		return m.DescribeReplaceRootVolumeTasks(ctx, &ec2.DescribeReplaceRootVolumeTasksInput{ReplaceRootVolumeTaskIds: words(f, "ReplaceRootVolumeTaskId")})
	case "ec2.DescribeInstanceTypes":
		return m.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: typesIn(f)})
	case "ec2.DescribeInstanceTypeOfferings":
		return m.DescribeInstanceTypeOfferings(ctx, &ec2.DescribeInstanceTypeOfferingsInput{Filters: filtersOf(f)})
	case "ec2.DescribeSpotPriceHistory":
		return m.DescribeSpotPriceHistory(ctx, &ec2.DescribeSpotPriceHistoryInput{InstanceTypes: typesIn(f)})
	case "ec2.DescribeCapacityReservations":
		return m.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{CapacityReservationIds: words(f, "CapacityReservationId")})
	}
	return n.workJSON(ctx, name, body)
}

func (n *onNetwork) workJSON(ctx context.Context, name string, body []byte) (any, error) {
	var in struct {
		InstanceIds, InstanceTypes []string
		Parameters                 map[string][]string
		CommandId, InstanceId      *string
		Filters                    []struct {
			Field, Value, Name *string
			Values             []string
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	m := n.m
	switch name {
	case "ssm.SendCommand":
		return m.SendCommand(ctx, &ssm.SendCommandInput{InstanceIds: in.InstanceIds, Parameters: in.Parameters})
	case "ssm.GetCommandInvocation":
		return m.GetCommandInvocation(ctx, &ssm.GetCommandInvocationInput{CommandId: in.CommandId, InstanceId: in.InstanceId})
	case "sqs.ReceiveMessage":
		return m.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{})
	case "sqs.DeleteMessage":
		return m.DeleteMessage(ctx, &sqs.DeleteMessageInput{})
	case "pricing.GetProducts":
		out := &pricing.GetProductsInput{}
		for _, f := range in.Filters {
			out.Filters = append(out.Filters, pricingtypes.Filter{Field: f.Field, Value: f.Value})
		}
		return m.GetProducts(ctx, out)
	case "savingsplans.DescribeSavingsPlans":
		return m.DescribeSavingsPlans(ctx, nil)
	case "savingsplans.DescribeSavingsPlanRates":
		out := &savingsplans.DescribeSavingsPlanRatesInput{}
		for _, f := range in.Filters {
			out.Filters = append(out.Filters, savingstypes.SavingsPlanRateFilter{Name: savingstypes.SavingsPlanRateFilterName(awssdk.ToString(f.Name)), Values: f.Values})
		}
		return m.DescribeSavingsPlanRates(ctx, out)
	}
	return nil, fmt.Errorf("the provider made a call that this test does not know: %s", name)
}

// setFault replaces the fault.
func (n *onNetwork) setFault(f func(name string) *httpFault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
}
