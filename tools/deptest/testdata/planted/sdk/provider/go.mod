module planted.example/fleet/sdk/provider

go 1.26.0

require k8s.io/api v0.0.0
