module planted.example/fleet/sdk/identity

go 1.26.0
