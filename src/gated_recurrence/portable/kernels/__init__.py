"""One kernel file a stage; `products` is what they share."""
