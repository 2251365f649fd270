"""The `parkade` command."""

from deploy.cli.application import app, main

__all__ = ["app", "main"]
