"""The operations a model shard is written in, and their implementations."""
