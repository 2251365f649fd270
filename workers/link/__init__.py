"""How step plans travel from an engine to its ranks, and answers back: frames over a Unix or TCP socket."""

from workers.link.engine_side import PlanLink
from workers.link.errors import BadEndpoint, BadFrame, LinkClosed, LinkError, LinkRefused
from workers.link.rank_side import Build, CopyEnd, LinkAddress, OnCopy, PlanRunner, serve_rank

__all__ = [
    "BadEndpoint",
    "BadFrame",
    "Build",
    "CopyEnd",
    "LinkAddress",
    "LinkClosed",
    "LinkError",
    "LinkRefused",
    "OnCopy",
    "PlanLink",
    "PlanRunner",
    "serve_rank",
]
