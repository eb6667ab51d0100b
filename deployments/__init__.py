"""What runs inside the replicas: decoding, the model parts, and the pipeline between them."""
