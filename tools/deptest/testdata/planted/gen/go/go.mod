module planted.example/fleet/gen/go

go 1.26.0
