"""Starting, watching and ending a server: a supervisor that people see, and a driver that speaks to Ray."""

from deploy.serve.supervisor import serve

__all__ = ["serve"]
