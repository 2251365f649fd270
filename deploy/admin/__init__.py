"""gRPC administration of a running server, and what its clients need. Nothing here is imported for nothing: gRPC is
loaded only by `server`, `connection` and what stands beside them.
"""
