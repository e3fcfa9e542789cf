module planted.example/fleet/sdk/otlp

go 1.26.0
