"""The table from what went wrong to what a gRPC client reads: code, message, trailing metadata."""

import logging

import grpc

from cluster.errors import ClusterError
from deploy.admin.fields import BadField
from scheduler.admission import UnknownRequest, WrongState

log = logging.getLogger(__name__)

Metadata = tuple[tuple[str, str], ...]


class TooManyWatchers(RuntimeError):
    """No further stream of events is opened."""


def status_of(error: Exception) -> tuple[grpc.StatusCode, str, Metadata]:
    """The inside is told to the log alone."""
    match error:
        case BadField():
            return grpc.StatusCode.INVALID_ARGUMENT, str(error), (("parkade-field", error.field),)
        case UnknownRequest():
            return grpc.StatusCode.NOT_FOUND, str(error), ()
        case WrongState():
            return grpc.StatusCode.FAILED_PRECONDITION, str(error), (("parkade-state", error.state),)
        case TooManyWatchers():
            return grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), ()
        case ClusterError():
            return grpc.StatusCode.UNAVAILABLE, str(error), ()
        case _:
            log.error("an admin call failed", exc_info=error)
            return grpc.StatusCode.INTERNAL, f"the admin interface failed ({type(error).__name__}); see its log", ()
