package aws

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

//go:embed recorded.json
var recordedJSON []byte

// records are instance types and on-demand prices as AWS showed them on a day, for when it cannot be asked. The file names its
// source.
type records struct {
	Source   string                        `json:"source"`
	Recorded string                        `json:"recorded"` // date
	Types    map[string]shape              `json:"types"`
	Prices   map[string]map[string]float64 `json:"prices"` // by region and type, USD per hour, Linux, shared tenancy
}

var recorded = func() (r records) {
	if err := json.Unmarshal(recordedJSON, &r); err != nil {
		panic(fmt.Sprintf("recorded.json: %v", err)) // of this package, read by its tests
	}
	return r
}()

// shape is what DescribeInstanceTypes says about a type, as far as it matters here.
type shape struct {
	Arch        string `json:"arch"` // as AWS writes it: x86_64, arm64
	VCPUs       int64  `json:"vcpus"`
	MemoryMiB   int64  `json:"memory_mib"`
	Interfaces  int64  `json:"interfaces"`
	Addresses   int64  `json:"addresses"` // IPv4 addresses of each interface
	Spot        bool   `json:"spot"`
	LocalDiskGB int64  `json:"local_disk_gb"`
	GPUs        int64  `json:"gpus"`
	GPUMaker    string `json:"gpu_maker"`
	GPU         string `json:"gpu"`
}

func shapeOf(i types.InstanceTypeInfo) shape {
	var s shape
	if p := i.ProcessorInfo; p != nil && len(p.SupportedArchitectures) > 0 {
		s.Arch = string(p.SupportedArchitectures[0])
		if slices.Contains(p.SupportedArchitectures, types.ArchitectureTypeX8664) { // of i386 and x86_64
			s.Arch = string(types.ArchitectureTypeX8664)
		}
	}
	if c := i.VCpuInfo; c != nil {
		s.VCPUs = int64(aws.ToInt32(c.DefaultVCpus))
	}
	if m := i.MemoryInfo; m != nil {
		s.MemoryMiB = aws.ToInt64(m.SizeInMiB)
	}
	if n := i.NetworkInfo; n != nil {
		s.Interfaces, s.Addresses = int64(aws.ToInt32(n.MaximumNetworkInterfaces)), int64(aws.ToInt32(n.Ipv4AddressesPerInterface))
	}
	if d := i.InstanceStorageInfo; d != nil {
		s.LocalDiskGB = aws.ToInt64(d.TotalSizeInGB)
	}
	s.Spot = slices.Contains(i.SupportedUsageClasses, types.UsageClassTypeSpot)
	if g := i.GpuInfo; g != nil {
		for _, one := range g.Gpus {
			s.GPUs += int64(aws.ToInt32(one.Count))
			s.GPUMaker, s.GPU = aws.ToString(one.Manufacturer), aws.ToString(one.Name)
		}
	}
	return s
}

// kubernetesArch is the label of the architecture.
func (s shape) kubernetesArch() string {
	if s.Arch == "arm64" {
		return "arm64"
	}
	return "amd64"
}

// pods is what the VPC CNI of AWS can give addresses to: each interface keeps one for itself, and two Pods use the host's. It is at most
// 110 below 30 vCPUs and 250 above, as AWS recommends.
func (s shape) pods() int64 {
	most := int64(110)
	if s.VCPUs >= 30 {
		most = 250
	}
	if s.Interfaces == 0 {
		return most
	}
	return min(most, s.Interfaces*(s.Addresses-1)+2)
}

// resources are the whole machine.
func (s shape) resources() map[string]string {
	out := map[string]string{
		"cpu": strconv.FormatInt(s.VCPUs, 10), "memory": strconv.FormatInt(s.MemoryMiB, 10) + "Mi", "pods": strconv.FormatInt(s.pods(), 10),
	}
	if s.GPUs > 0 && s.GPUMaker == "NVIDIA" {
		out["nvidia.com/gpu"] = strconv.FormatInt(s.GPUs, 10)
	}
	return out
}

// What a node does not offer. vmShare is the part of the memory that the hypervisor keeps, Karpenter's default guess; the kubelet's reservation
// is that of AWS's own images: 255 MiB and 11 MiB a Pod, and the kubelet evicts below 100 MiB.
const (
	vmShare         = 0.075
	reservedBaseMiB = 255
	reservedPodMiB  = 11
	evictionMiB     = 100
)

// allocatable is an estimate of what the kubelet of one of AWS's images reports. Other images reserve something else.
func (s shape) allocatable() map[string]string {
	out := maps.Clone(s.resources())
	memory := s.MemoryMiB - int64(math.Ceil(float64(s.MemoryMiB)*vmShare)) - reservedBaseMiB - reservedPodMiB*s.pods() - evictionMiB
	out["memory"] = strconv.FormatInt(max(memory, 0), 10) + "Mi"
	out["cpu"] = strconv.FormatInt(s.VCPUs*1000-s.reservedCPU(), 10) + "m"
	return out
}

// reservedCPU is in thousandths: 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of the others.
func (s shape) reservedCPU() int64 {
	reserved := 0.0
	for core := range s.VCPUs {
		switch {
		case core == 0:
			reserved += 60
		case core == 1:
			reserved += 10
		case core < 4:
			reserved += 5
		default:
			reserved += 2.5
		}
	}
	return int64(math.Ceil(reserved))
}

// hourly turns the share of instances that is interrupted in a month into a chance per hour (PROV-28.6).
func hourly(monthly float64) float64 { return 1 - math.Pow(1-monthly, 1/hoursPerMonth) }

const hoursPerMonth = 730.0

// spotFloor is the chance per hour of a spot type of which nothing is known: the edge of the highest band that the Spot advisor
// publishes, 20 % a month.
var spotFloor = math.Round(hourly(0.2)*1e6) / 1e6
