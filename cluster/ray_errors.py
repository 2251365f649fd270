"""Ray's errors as one line that names the cause."""

from ray.exceptions import ActorDiedError, RayTaskError


def ray_error_text(error: BaseException) -> str:
    """What the remote side raised, without Ray's frames; never empty."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        return ray_error_text(error.cause)
    if isinstance(error, ActorDiedError):
        return "its process died"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
