"""What a candidate is fed: counter-based values, boundary shapes, layouts, special values, recipes."""
