module planted.example/fleet/e2e

go 1.26.0
