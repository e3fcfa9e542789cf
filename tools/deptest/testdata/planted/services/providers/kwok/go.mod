module planted.example/fleet/services/providers/kwok

go 1.26.0
