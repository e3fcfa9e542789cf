module planted.example/fleet/services/kit

go 1.26.0
