module planted.example/fleet/services/operator

go 1.26.0
