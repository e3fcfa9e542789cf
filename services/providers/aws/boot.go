package aws

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// bootBytesMax keeps a command below the 64 KB of a document of Systems Manager, also when the boot data cannot be compressed.
const bootBytesMax = 32 << 10

// shellDocument is the public document that runs a shell script.
const shellDocument = "AWS-RunShellScript"

// hook is the program of the image that joins the instance to a cluster: it gets the cluster id as its argument and the boot data
// on its standard input. deploy/aws/bootstrap is one for images with cloud-init.
const hook = "/opt/bigfleet/bootstrap"

// Configure starts a stopped instance and runs the hook of its image with the boot data.
func (b *backend) Configure(ctx context.Context, op provider.ConfigureOp) error {
	if len(op.Blob) == 0 {
		return provider.Bootstrap(errors.New("the boot data is empty"))
	}
	id, err := instanceID(op.Machine.HostRef)
	if err != nil {
		return err
	}
	if err := b.start(ctx, id); err != nil {
		return err
	}
	script, err := bootScript(op.ID, op.Cluster, op.Blob)
	if err != nil {
		return provider.Bootstrap(err)
	}
	return b.run(ctx, id, script)
}

// bootScript runs the hook once for an operation, however often the command is sent: a file remembers the operation, and a lock
// makes a second command wait for the first.
func bootScript(operation, cluster string, blob []byte) ([]string, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(blob); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return []string{
		"set -eu", "umask 077", "mkdir -p /var/lib/bigfleet", "exec 9>/var/lib/bigfleet/lock", "flock 9",
		fmt.Sprintf(`if [ "$(cat /var/lib/bigfleet/operation 2>/dev/null)" = %s ]; then exit 0; fi`, quote(operation)),
		fmt.Sprintf("echo %s | base64 -d | gzip -d | %s %s", base64.StdEncoding.EncodeToString(packed.Bytes()), hook, quote(cluster)),
		fmt.Sprintf("echo %s > /var/lib/bigfleet/operation", quote(operation)),
	}, nil
}

// quote makes one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// run sends a script and waits for its end.
func (b *backend) run(ctx context.Context, id string, script []string) error {
	command, err := b.send(ctx, id, script)
	if err != nil {
		return err
	}
	in := &ssm.GetCommandInvocationInput{CommandId: &command, InstanceId: &id}
	for {
		out, err := call(ctx, "ssm.GetCommandInvocation", func(ctx context.Context) (*ssm.GetCommandInvocationOutput, error) {
			out, err := b.cloud.ssm.GetCommandInvocation(ctx, in)
			if codeOf(err) == "InvocationDoesNotExist" { // it was sent a moment ago
				return &ssm.GetCommandInvocationOutput{Status: ssmtypes.CommandInvocationStatusPending}, nil
			}
			return out, err
		})
		if err != nil {
			return fmt.Errorf("wait for command %s on %s: %w", command, id, err)
		}
		switch out.Status {
		case ssmtypes.CommandInvocationStatusSuccess:
			return nil
		case ssmtypes.CommandInvocationStatusFailed, ssmtypes.CommandInvocationStatusCancelled, ssmtypes.CommandInvocationStatusTimedOut:
			return provider.Bootstrap(fmt.Errorf("%s on %s ended as %s (exit code %d): %s", hook, id, out.Status, out.ResponseCode, lastWords(out)))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("command %s on %s is %s: %w", command, id, out.Status, context.Cause(ctx))
		case <-time.After(b.poll):
		}
	}
}

// send hands a script to Systems Manager, which refuses it until the agent of the instance has called. That is not a failure of AWS, so it does not
// count as one.
func (b *backend) send(ctx context.Context, id string, script []string) (command string, err error) {
	for {
		out, err := call(ctx, "ssm.SendCommand", func(ctx context.Context) (*ssm.SendCommandOutput, error) {
			out, err := b.cloud.ssm.SendCommand(ctx, &ssm.SendCommandInput{
				DocumentName: awssdk.String(shellDocument), InstanceIds: []string{id}, Parameters: map[string][]string{"commands": script},
			})
			if codeOf(err) == "InvalidInstanceId" {
				return nil, nil
			}
			return out, err
		})
		if err != nil {
			return "", fmt.Errorf("send the boot data to %s through Systems Manager: %w", id, err)
		}
		if out != nil {
			return awssdk.ToString(out.Command.CommandId), nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("the Systems Manager agent of %s has not connected: check its instance profile (AmazonSSMManagedInstanceCore), its image and its network access: %w",
				id, context.Cause(ctx))
		case <-time.After(b.poll):
		}
	}
}

// wordsMax is how much of a failed hook's output goes into last_error (PROV-28.8).
const wordsMax = 1024

// secrets look like a bootstrap token, or are long enough to be a key or a certificate.
var secrets = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}|[A-Za-z0-9+/_=-]{32,}`)

func lastWords(out *ssm.GetCommandInvocationOutput) string {
	text := awssdk.ToString(out.StandardErrorContent)
	if strings.TrimSpace(text) == "" {
		text = awssdk.ToString(out.StandardOutputContent)
	}
	text = strings.Join(strings.Fields(secrets.ReplaceAllString(text, "[removed]")), " ")
	if len(text) > wordsMax {
		text = "..." + strings.ToValidUTF8(text[len(text)-wordsMax:], "")
	}
	if text == "" {
		return "it wrote no output"
	}
	return text
}

// start returns once the instance runs.
func (b *backend) start(ctx context.Context, id string) error {
	i, err := b.await(ctx, id, "running or stopped", types.InstanceStateNameRunning, types.InstanceStateNameStopped)
	if err != nil || stateOf(i) == types.InstanceStateNameRunning {
		return err
	}
	if _, err := call(ctx, "ec2.StartInstances", func(ctx context.Context) (*ec2.StartInstancesOutput, error) {
		return b.cloud.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
	}); err != nil {
		return fmt.Errorf("start %s: %w", id, err)
	}
	_, err = b.await(ctx, id, "running", types.InstanceStateNameRunning)
	return err
}

// stop returns once the instance is stopped, which also erases its local disks.
func (b *backend) stop(ctx context.Context, id string) error {
	if _, err := call(ctx, "ec2.StopInstances", func(ctx context.Context) (*ec2.StopInstancesOutput, error) {
		return b.cloud.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}})
	}); err != nil {
		return fmt.Errorf("stop %s: %w", id, err)
	}
	_, err := b.await(ctx, id, "stopped", types.InstanceStateNameStopped)
	return err
}

// Drain resets the instance: a new root volume from its image takes the place of the old one, which is deleted. The Node leaves the
// cluster, volumes of Pods are detached, and local disks are erased by a stop. Nothing is evicted here.
func (b *backend) Drain(ctx context.Context, op provider.DrainOp) error {
	id, err := instanceID(op.Machine.HostRef)
	if err != nil {
		return err
	}
	if err := b.start(ctx, id); err != nil { // a root volume is replaced while the instance runs
		return err
	}
	if err := b.replaceRoot(ctx, op.ID, id); err != nil {
		return err
	}
	if b.nodes != nil {
		if err := b.nodes.Remove(ctx, op.Cluster, op.Machine.HostRef); err != nil {
			return err
		}
	}
	if err := b.detached(ctx, id); err != nil {
		return err
	}
	s, err := b.shape(ctx, op.Machine.InstanceType)
	if err != nil {
		return err
	}
	if op.Machine.CapacityType != provider.Spot && (b.settings.Idle == idleStopped || s.LocalDiskGB > 0) {
		return b.stop(ctx, id)
	}
	_, err = b.await(ctx, id, "running", types.InstanceStateNameRunning)
	return err
}

// replaceRoot has one task per operation: the operation id is the client token.
func (b *backend) replaceRoot(ctx context.Context, operation, id string) error {
	made, err := call(ctx, "ec2.CreateReplaceRootVolumeTask", func(ctx context.Context) (*ec2.CreateReplaceRootVolumeTaskOutput, error) {
		return b.cloud.ec2.CreateReplaceRootVolumeTask(ctx, &ec2.CreateReplaceRootVolumeTaskInput{
			InstanceId: &id, ClientToken: &operation, DeleteReplacedRootVolume: awssdk.Bool(true),
		})
	})
	if err != nil {
		return fmt.Errorf("replace the root volume of %s: %w", id, err)
	}
	task := awssdk.ToString(made.ReplaceRootVolumeTask.ReplaceRootVolumeTaskId)
	for {
		out, err := call(ctx, "ec2.DescribeReplaceRootVolumeTasks", func(ctx context.Context) (*ec2.DescribeReplaceRootVolumeTasksOutput, error) {
			return b.cloud.ec2.DescribeReplaceRootVolumeTasks(ctx, &ec2.DescribeReplaceRootVolumeTasksInput{ReplaceRootVolumeTaskIds: []string{task}})
		})
		if err != nil {
			return fmt.Errorf("wait for %s: %w", task, err)
		}
		state := types.ReplaceRootVolumeTaskStatePending
		if len(out.ReplaceRootVolumeTasks) == 1 {
			state = out.ReplaceRootVolumeTasks[0].TaskState
		}
		switch state {
		case types.ReplaceRootVolumeTaskStateSucceeded:
			return nil
		case types.ReplaceRootVolumeTaskStateFailed, types.ReplaceRootVolumeTaskStateFailedDetached:
			return fmt.Errorf("%s is %s: the root volume of %s was not replaced", task, state, id)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s of %s is %s: %w", task, id, state, context.Cause(ctx))
		case <-time.After(b.poll):
		}
	}
}

// detached waits until the cluster has taken the volumes of its Pods away.
func (b *backend) detached(ctx context.Context, id string) error {
	var left []string
	attached := func(err error) error {
		return fmt.Errorf("volumes are still attached to %s (%s): %w", id, strings.Join(left, ", "), err)
	}
	for {
		i, err := b.looks.Do(ctx, id)
		if err != nil {
			return attached(err)
		}
		if i != nil {
			if ended(stateOf(i)) {
				return b.endedError(id, i)
			}
			if left = volumes(i); len(left) == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return attached(context.Cause(ctx))
		case <-time.After(b.poll):
		}
	}
}

// Bind implements provider.Binder: the tags of an instance say whose it is.
func (b *backend) Bind(ctx context.Context, m provider.Machine, binding provider.Binding) error {
	id, err := instanceID(m.HostRef)
	if err != nil {
		return err
	}
	metadata, err := json.Marshal(binding.Metadata)
	if err != nil {
		return fmt.Errorf("write the metadata: %w", err)
	}
	tags := map[string]string{tagCluster: binding.Cluster, tagMetadata: string(metadata)}
	if len(metadata) > tagValueMax {
		delete(tags, tagMetadata)
		sum := sha256.Sum256(metadata)
		tags[tagDigest] = hex.EncodeToString(sum[:])
	}
	if _, err := call(ctx, "ec2.CreateTags", func(ctx context.Context) (*ec2.CreateTagsOutput, error) {
		return b.cloud.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tagList(tags)})
	}); err != nil {
		return fmt.Errorf("tag %s with its cluster: %w", id, err)
	}
	return nil
}

// Unbind implements provider.Binder.
func (b *backend) Unbind(ctx context.Context, m provider.Machine) error {
	id, err := instanceID(m.HostRef)
	if err != nil {
		return err
	}
	var tags []types.Tag
	for _, key := range []string{tagCluster, tagMetadata, tagDigest} {
		tags = append(tags, types.Tag{Key: awssdk.String(key)})
	}
	_, err = call(ctx, "ec2.DeleteTags", func(ctx context.Context) (*ec2.DeleteTagsOutput, error) {
		return b.cloud.ec2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{id}, Tags: tags})
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("remove the cluster's tags of %s: %w", id, err)
	}
	return nil
}

// binding is what the tags of an instance say.
func (b *backend) binding(machine string, tags map[string]string) *provider.Binding {
	out := &provider.Binding{Cluster: tags[tagCluster]}
	switch {
	case tags[tagDigest] != "":
		b.log.Debug("the metadata of an instance was too large for a tag; only its digest is stored", "machine", machine)
	case tags[tagMetadata] != "":
		if err := json.Unmarshal([]byte(tags[tagMetadata]), &out.Metadata); err != nil {
			b.log.Warn("the binding of an instance can be read only in part", "machine", machine, "err", err)
		}
	}
	return out
}
