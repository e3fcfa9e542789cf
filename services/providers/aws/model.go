package aws

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

// model is AWS as its API references describe it, as far as this provider calls it: states with their delays, answers that lag,
// client tokens, and errors by their codes. It is the fake of --use-fake-backend and of the tests. It keeps itself in a file, so
// that a provider that is killed finds its instances again.
type model struct {
	file   string // empty: it forgets
	region string
	// lag is how long each change of state takes, and how long a new instance is not shown.
	lag time.Duration

	mu sync.Mutex
	modelState
	empty map[poolKey]bool // pools without capacity
	// fault is asked at each call: an error before it has its effect, and one after. Nil: none.
	fault func(name string) (before, after error)
	queue []string // messages of EventBridge
	acked int
	// hookError is what the hook of every image says before it fails.
	hookError string
	calls     map[string]int
}

type modelState struct {
	Next      int
	Instances map[string]*modelInstance
	Tokens    map[string]modelToken // by client token
	Tasks     map[string]*modelTask
	Commands  map[string]*modelCommand
}

type modelInstance struct {
	ID, Type, Zone string
	Reservation    string
	Spot           bool
	State          types.InstanceStateName // where it goes
	From           types.InstanceStateName // where it comes from, until Since and the lag have passed
	Since          time.Time
	Tags           map[string]string
	Root           int               // how many root volumes it has had
	Disk           map[string]string // what is on the root volume: operation, cluster, blob
	Extra          []string          // further volumes
}

type modelToken struct{ What, Made string }

type modelTask struct {
	ID, Instance string
	Since        time.Time
}

type modelCommand struct {
	Instance, Error string
	Since           time.Time
}

func newModel(file string, lag time.Duration) (*model, error) {
	m := &model{file: file, region: "us-east-1", lag: lag, empty: map[poolKey]bool{}, calls: map[string]int{}}
	m.forget()
	if file == "" {
		return m, nil
	}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	return m, json.Unmarshal(text, &m.modelState)
}

// forget drops all that was made.
func (m *model) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.modelState = modelState{
		Instances: map[string]*modelInstance{}, Tokens: map[string]modelToken{}, Tasks: map[string]*modelTask{}, Commands: map[string]*modelCommand{},
	}
}

// cloud is AWS with the model behind every interface.
func (m *model) cloud() cloud {
	return cloud{region: m.region, ec2: m, ssm: m, sqs: m, pricing: m, savings: m}
}

func apiError(code, format string, args ...any) error {
	return &smithy.GenericAPIError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// do makes one call that changes something: faults around it, its effect under the lock, and the file after it.
func do[T any](ctx context.Context, m *model, name string, effect func() (*T, error)) (*T, error) {
	return answer(ctx, m, name, func() (*T, error) {
		out, err := effect()
		if err == nil {
			err = m.save()
		}
		return out, err
	})
}

// read makes one call that changes nothing. Pollers make thousands of them, and the file holds every instance.
func read[T any](ctx context.Context, m *model, name string, effect func() (*T, error)) (*T, error) {
	return answer(ctx, m, name, effect)
}

func answer[T any](ctx context.Context, m *model, name string, effect func() (*T, error)) (*T, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[name]++
	var before, after error
	if m.fault != nil {
		before, after = m.fault(name)
	}
	if before != nil {
		return nil, before
	}
	out, err := effect()
	if err != nil {
		return nil, err
	}
	return out, after
}

func (m *model) save() error {
	if m.file == "" {
		return nil
	}
	text, err := json.Marshal(m.modelState)
	if err != nil {
		return err
	}
	if err := os.WriteFile(m.file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(m.file+".new", m.file)
}

func (m *model) id(kind string) string {
	m.Next++
	return fmt.Sprintf("%s-%017x", kind, m.Next)
}

// state is what an instance shows now.
func (m *model) state(i *modelInstance) types.InstanceStateName {
	if time.Since(i.Since) < m.lag {
		return i.From
	}
	return i.State
}

func (m *model) turn(i *modelInstance, through, to types.InstanceStateName) {
	i.From, i.State, i.Since = through, to, time.Now()
}

func (m *model) get(ids []string) (*modelInstance, error) {
	if len(ids) != 1 || m.Instances[ids[0]] == nil {
		return nil, apiError("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(ids, ", "))
	}
	return m.Instances[ids[0]], nil
}

// show is an instance as DescribeInstances shows it.
func (m *model) show(i *modelInstance) types.Instance {
	out := types.Instance{
		InstanceId: &i.ID, InstanceType: types.InstanceType(i.Type), Placement: &types.Placement{AvailabilityZone: &i.Zone},
		State: &types.InstanceState{Name: m.state(i)}, RootDeviceName: awssdk.String("/dev/xvda"),
		BlockDeviceMappings: []types.InstanceBlockDeviceMapping{{DeviceName: awssdk.String("/dev/xvda"), Ebs: &types.EbsInstanceBlockDevice{
			VolumeId: awssdk.String(fmt.Sprintf("vol-%s-%d", strings.TrimPrefix(i.ID, "i-"), i.Root)),
		}}},
	}
	for n, v := range i.Extra {
		out.BlockDeviceMappings = append(out.BlockDeviceMappings, types.InstanceBlockDeviceMapping{
			DeviceName: awssdk.String(fmt.Sprintf("/dev/xvd%c", 'b'+n)), Ebs: &types.EbsInstanceBlockDevice{VolumeId: &v},
		})
	}
	if i.Spot {
		out.InstanceLifecycle = types.InstanceLifecycleTypeSpot
	}
	for _, k := range slices.Sorted(maps.Keys(i.Tags)) {
		out.Tags = append(out.Tags, types.Tag{Key: awssdk.String(k), Value: awssdk.String(i.Tags[k])})
	}
	return out
}

func (m *model) DescribeInstances(ctx context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	return read(ctx, m, "ec2.DescribeInstances", func() (*ec2.DescribeInstancesOutput, error) {
		out := &ec2.DescribeInstancesOutput{}
		after := awssdk.ToString(in.NextToken)
		for _, id := range slices.Sorted(maps.Keys(m.Instances)) {
			i := m.Instances[id]
			if id <= after || i.State == types.InstanceStateNameRunning && i.From == types.InstanceStateNamePending && time.Since(i.Since) < m.lag/2 {
				continue // of another page, or too young to be shown
			}
			if !m.matches(i, in.Filters) {
				continue
			}
			if len(out.Reservations) == modelPage {
				out.NextToken = out.Reservations[modelPage-1].Instances[0].InstanceId
				break
			}
			out.Reservations = append(out.Reservations, types.Reservation{Instances: []types.Instance{m.show(i)}})
		}
		return out, nil
	})
}

// modelPage is the size of the model's pages, small so that there are several.
const modelPage = 20

func (m *model) matches(i *modelInstance, filters []types.Filter) bool {
	for _, f := range filters {
		value := i.ID
		if tag, ok := strings.CutPrefix(*f.Name, "tag:"); ok {
			value = i.Tags[tag]
		}
		if !slices.Contains(f.Values, value) {
			return false
		}
	}
	return true
}

func (m *model) TerminateInstances(ctx context.Context, in *ec2.TerminateInstancesInput, _ ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error) {
	return do(ctx, m, "ec2.TerminateInstances", func() (*ec2.TerminateInstancesOutput, error) {
		i, err := m.get(in.InstanceIds)
		if err == nil && i.State != types.InstanceStateNameTerminated {
			m.turn(i, types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated)
			m.dropTerminated()
		}
		return &ec2.TerminateInstancesOutput{}, err
	})
}

// terminatedKept is how long a terminated instance is shown. AWS shows it for about an hour.
const terminatedKept = time.Minute

// dropTerminated drops instances that were terminated long ago with what belonged to them. Without it a long run would spend its time on them.
func (m *model) dropTerminated() {
	maps.DeleteFunc(m.Instances, func(_ string, i *modelInstance) bool {
		return i.State == types.InstanceStateNameTerminated && time.Since(i.Since) > terminatedKept
	})
	maps.DeleteFunc(m.Tasks, func(_ string, t *modelTask) bool { return m.Instances[t.Instance] == nil })
	maps.DeleteFunc(m.Commands, func(_ string, c *modelCommand) bool { return m.Instances[c.Instance] == nil })
	maps.DeleteFunc(m.Tokens, func(_ string, t modelToken) bool {
		return m.Tasks[t.Made] == nil && m.Instances[t.Made] == nil
	})
}

func (m *model) wrongState(i *modelInstance, what string) error {
	return apiError("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be %s: %s", i.ID, what, m.state(i))
}

func (m *model) StartInstances(ctx context.Context, in *ec2.StartInstancesInput, _ ...func(*ec2.Options)) (*ec2.StartInstancesOutput, error) {
	return do(ctx, m, "ec2.StartInstances", func() (*ec2.StartInstancesOutput, error) {
		i, err := m.get(in.InstanceIds)
		if err != nil {
			return nil, err
		}
		switch s := m.state(i); s {
		case types.InstanceStateNameStopped:
			m.turn(i, types.InstanceStateNamePending, types.InstanceStateNameRunning)
			i.Since = i.Since.Add(-m.lag / 2) // it is shown at once
		case types.InstanceStateNameRunning, types.InstanceStateNamePending:
		default:
			return nil, m.wrongState(i, "started")
		}
		return &ec2.StartInstancesOutput{}, nil
	})
}

func (m *model) StopInstances(ctx context.Context, in *ec2.StopInstancesInput, _ ...func(*ec2.Options)) (*ec2.StopInstancesOutput, error) {
	return do(ctx, m, "ec2.StopInstances", func() (*ec2.StopInstancesOutput, error) {
		i, err := m.get(in.InstanceIds)
		switch {
		case err != nil:
			return nil, err
		case i.Spot:
			return nil, apiError("UnsupportedOperation", "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request", i.ID)
		}
		switch m.state(i) {
		case types.InstanceStateNameRunning:
			m.turn(i, types.InstanceStateNameStopping, types.InstanceStateNameStopped)
		case types.InstanceStateNameStopping, types.InstanceStateNameStopped:
		default:
			return nil, m.wrongState(i, "stopped")
		}
		return &ec2.StopInstancesOutput{}, nil
	})
}

func (m *model) CreateReplaceRootVolumeTask(ctx context.Context, in *ec2.CreateReplaceRootVolumeTaskInput, _ ...func(*ec2.Options)) (*ec2.CreateReplaceRootVolumeTaskOutput, error) {
	return do(ctx, m, "ec2.CreateReplaceRootVolumeTask", func() (*ec2.CreateReplaceRootVolumeTaskOutput, error) {
		i, err := m.get([]string{*in.InstanceId})
		if err != nil {
			return nil, err
		}
		t, again := m.Tokens[*in.ClientToken]
		if !again {
			if m.state(i) != types.InstanceStateNameRunning {
				return nil, m.wrongState(i, "given a root volume")
			}
			t = modelToken{"root " + i.ID, m.id("replacevol")}
			m.Tokens[*in.ClientToken] = t
			m.Tasks[t.Made] = &modelTask{t.Made, i.ID, time.Now()}
			i.Root++
			i.Disk = map[string]string{}
		}
		return &ec2.CreateReplaceRootVolumeTaskOutput{ReplaceRootVolumeTask: m.task(m.Tasks[t.Made])}, nil
	})
}

func (m *model) task(t *modelTask) *types.ReplaceRootVolumeTask {
	state := types.ReplaceRootVolumeTaskStateSucceeded
	if time.Since(t.Since) < m.lag {
		state = types.ReplaceRootVolumeTaskStateInProgress
	}
	return &types.ReplaceRootVolumeTask{ReplaceRootVolumeTaskId: &t.ID, InstanceId: &t.Instance, TaskState: state}
}

func (m *model) DescribeReplaceRootVolumeTasks(ctx context.Context, in *ec2.DescribeReplaceRootVolumeTasksInput, _ ...func(*ec2.Options)) (*ec2.DescribeReplaceRootVolumeTasksOutput, error) {
	return read(ctx, m, "ec2.DescribeReplaceRootVolumeTasks", func() (*ec2.DescribeReplaceRootVolumeTasksOutput, error) {
		out := &ec2.DescribeReplaceRootVolumeTasksOutput{}
		for _, id := range in.ReplaceRootVolumeTaskIds {
			if t := m.Tasks[id]; t != nil {
				out.ReplaceRootVolumeTasks = append(out.ReplaceRootVolumeTasks, *m.task(t))
			}
		}
		return out, nil
	})
}

func (m *model) CreateTags(ctx context.Context, in *ec2.CreateTagsInput, _ ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error) {
	return do(ctx, m, "ec2.CreateTags", func() (*ec2.CreateTagsOutput, error) {
		i, err := m.get(in.Resources)
		if err != nil {
			return nil, err
		}
		for _, t := range in.Tags {
			if len(*t.Key) > tagKeyMax || len(*t.Value) > tagValueMax {
				return nil, apiError("InvalidParameterValue", "Tag %s is too long", *t.Key)
			}
			i.Tags[*t.Key] = *t.Value
		}
		return &ec2.CreateTagsOutput{}, nil
	})
}

func (m *model) DeleteTags(ctx context.Context, in *ec2.DeleteTagsInput, _ ...func(*ec2.Options)) (*ec2.DeleteTagsOutput, error) {
	return do(ctx, m, "ec2.DeleteTags", func() (*ec2.DeleteTagsOutput, error) {
		i, err := m.get(in.Resources)
		if err != nil {
			return nil, err
		}
		for _, t := range in.Tags {
			delete(i.Tags, *t.Key)
		}
		return &ec2.DeleteTagsOutput{}, nil
	})
}

var (
	hookLine      = regexp.MustCompile(`^echo (\S+) \| base64 -d \| gzip -d \| \S+ '(.*)'$`)
	operationLine = regexp.MustCompile(`^echo '(.*)' > /var/lib/bigfleet/operation$`)
)

// boot does what the script does on a host whose hook keeps what it is given.
func (i *modelInstance) boot(script []string) error {
	var operation, blob, cluster string
	for _, line := range script {
		if f := hookLine.FindStringSubmatch(line); f != nil {
			blob, cluster = f[1], f[2]
		}
		if f := operationLine.FindStringSubmatch(line); f != nil {
			operation = f[1]
		}
	}
	if operation == "" || blob == "" {
		return fmt.Errorf("not a script of this provider: %q", script)
	}
	if _, err := base64.StdEncoding.DecodeString(blob); err != nil {
		return err
	}
	if i.Disk["operation"] != operation {
		i.Disk = map[string]string{"operation": operation, "blob": blob, "cluster": cluster}
	}
	return nil
}
