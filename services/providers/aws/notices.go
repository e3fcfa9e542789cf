package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

const (
	messagesMax   = 10               // of one call; SQS gives no more
	messagesWait  = 20               // seconds that an empty call may last; SQS allows no more
	statusEvery   = time.Minute      // between two looks at scheduled events
	noticePause   = 10 * time.Second // after a call that failed
	sourceEC2     = "aws.ec2"
	detailSpotEnd = "EC2 Spot Instance Interruption Warning"
	detailRisk    = "EC2 Instance Rebalance Recommendation"
	detailState   = "EC2 Instance State-change Notification"
)

// Notify implements provider.Notifier: EventBridge's events from the queue, and scheduled events of EC2, which come by no queue.
func (b *backend) Notify(ctx context.Context, send func(provider.Notice)) error {
	if b.settings.QueueURL == "" {
		b.followStatus(ctx, send)
		return nil
	}
	ended := make(chan struct{})
	go func() { defer close(ended); b.followStatus(ctx, send) }()
	b.followQueue(ctx, send)
	<-ended
	return nil
}

// followQueue reads until the context ends. A message is deleted once its news is passed on; what cannot be read is deleted too,
// because it will never be read. SQS repeats what was not deleted.
func (b *backend) followQueue(ctx context.Context, send func(provider.Notice)) {
	in := &sqs.ReceiveMessageInput{QueueUrl: &b.settings.QueueURL, MaxNumberOfMessages: messagesMax, WaitTimeSeconds: messagesWait}
	for ctx.Err() == nil {
		out, err := b.cloud.sqs.ReceiveMessage(ctx, in)
		if err != nil {
			if ctx.Err() == nil {
				b.metrics.queueErrors.Inc()
				b.log.Error("the queue of interruption notices cannot be read", "queue", b.settings.QueueURL, "err", err)
			}
			rest(ctx, noticePause)
			continue
		}
		for _, m := range out.Messages {
			n, kind := b.notice(awssdk.ToString(m.Body))
			b.metrics.notices.WithLabelValues(kind).Inc()
			if n.MachineID != "" {
				send(n)
			}
			if _, err := b.cloud.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &b.settings.QueueURL, ReceiptHandle: m.ReceiptHandle}); err != nil && ctx.Err() == nil {
				b.metrics.queueErrors.Inc()
				b.log.Warn("a notice could not be deleted from the queue; it will be delivered again", "err", err)
			}
		}
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// event is one of EventBridge's, as far as it matters here.
type event struct {
	Source string `json:"source"`
	Type   string `json:"detail-type"`
	Detail struct {
		Instance string `json:"instance-id"`
		State    string `json:"state"`
	} `json:"detail"`
}

// notice is what a message means for a machine of ours; its machine id is empty when it means nothing. kind is its metric label.
func (b *backend) notice(body string) (n provider.Notice, kind string) {
	var e event
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Source != sourceEC2 {
		return n, "other"
	}
	switch e.Type {
	case detailSpotEnd:
		n.InterruptionProbability, kind = 1, "interruption"
	case detailRisk:
		n.InterruptionProbability, kind = b.settings.Rebalance, "rebalance"
		if b.settings.Rebalance == 0 {
			return n, kind
		}
	case detailState:
		kind = "state"
		if e.Detail.State != string(types.InstanceStateNameTerminated) {
			return n, kind
		}
		n.Gone = true
	default:
		return n, "other"
	}
	n.MachineID = b.machineOf(e.Detail.Instance)
	return n, kind
}

// machineOf is the machine whose host an instance is.
func (b *backend) machineOf(instance string) string {
	if instance == "" || b.fleet == nil {
		return ""
	}
	for m := range b.fleet.Machines() {
		if strings.HasSuffix(m.HostRef, "/"+instance) {
			return m.ID
		}
	}
	return ""
}

// followStatus looks at scheduled events until the context ends.
func (b *backend) followStatus(ctx context.Context, send func(provider.Notice)) {
	sent := map[string]bool{} // events that were passed on, by id
	for ctx.Err() == nil {
		next, err := b.scheduled(ctx, sent, send)
		if err != nil && ctx.Err() == nil {
			b.log.Warn("scheduled events of EC2 cannot be read", "err", err)
		}
		if err == nil {
			sent = next
		}
		rest(ctx, statusEvery)
	}
}

// ends are the scheduled events after which the instance does not run on.
var ends = []types.EventCode{types.EventCodeInstanceRetirement, types.EventCodeInstanceStop}

// scheduled passes on events that are new, and returns those that are known now.
func (b *backend) scheduled(ctx context.Context, sent map[string]bool, send func(provider.Notice)) (map[string]bool, error) {
	in := &ec2.DescribeInstanceStatusInput{MaxResults: awssdk.Int32(1000), Filters: []types.Filter{{Name: awssdk.String("event.code")}}}
	for _, code := range ends {
		in.Filters[0].Values = append(in.Filters[0].Values, string(code))
	}
	next := map[string]bool{}
	for {
		page, err := call(ctx, "ec2.DescribeInstanceStatus", func(ctx context.Context) (*ec2.DescribeInstanceStatusOutput, error) {
			return b.cloud.ec2.DescribeInstanceStatus(ctx, in)
		})
		if err != nil {
			return nil, err
		}
		for _, s := range page.InstanceStatuses {
			for _, e := range s.Events {
				id := awssdk.ToString(e.InstanceEventId)
				if strings.HasPrefix(awssdk.ToString(e.Description), "[Completed]") || strings.HasPrefix(awssdk.ToString(e.Description), "[Canceled]") {
					continue
				}
				machine := b.machineOf(awssdk.ToString(s.InstanceId))
				if machine == "" {
					continue
				}
				next[id] = true
				if !sent[id] {
					b.metrics.notices.WithLabelValues("scheduled").Inc()
					b.log.Info("EC2 will terminate an instance", "machine", machine, "event", e.Code, "not_before", fmt.Sprint(awssdk.ToTime(e.NotBefore)))
					send(provider.Notice{MachineID: machine, InterruptionProbability: 1})
				}
			}
		}
		if awssdk.ToString(page.NextToken) == "" {
			return next, nil
		}
		in.NextToken = page.NextToken
	}
}
