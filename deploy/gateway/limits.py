"""Bounds of the HTTP face."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """`max_body_bytes` bounds a request body; the times bound waiting for the template, for admission, for a status,
    for an order that parks or unparks, and for the node's metrics.

    A stream that has had nothing to say for `keep_alive_s` sends a comment. An order to park waits `park_wait_s` for
    the pages to be free. At most `max_text_requests` are parsed, rendered and tokenized at once or wait for it; they
    are on their way into the queue.
    """

    max_body_bytes: int = 8 * 2**20
    render_s: float = 2.0
    submit_s: float = 30.0
    health_s: float = 5.0
    order_s: float = 30.0
    park_wait_s: float = 5.0
    metrics_s: float = 5.0
    keep_alive_s: float = 2.0
    num_text_threads: int = 2
    max_text_requests: int = 1024
