module planted.example/fleet/services/coordinator

go 1.26.0
