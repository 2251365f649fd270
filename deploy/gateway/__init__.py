"""The street door for clients: OpenAI's HTTP interface over a `Backend`."""

from deploy.gateway.app import Fittings, create_app
from deploy.gateway.backend import Backend
from deploy.gateway.limits import GatewayLimits
from deploy.gateway.served_model import SamplingDefaults, ServedModel, load_served_model

__all__ = [
    "Backend",
    "Fittings",
    "GatewayLimits",
    "SamplingDefaults",
    "ServedModel",
    "create_app",
    "load_served_model",
]
