package provider

// WithBindingsBytes makes the bound of all metadata small enough for a test.
func WithBindingsBytes(n int) Option { return func(s *settings) { s.bindingsBytes = n } }
