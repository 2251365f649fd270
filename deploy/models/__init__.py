"""Model folders: fetching the default model, and turning what a user typed into a folder on disk."""

from deploy.models.catalogue import KNOWN_MODELS, KnownModel
from deploy.models.errors import ModelError
from deploy.models.fetch import FetchReport, fetch_model, model_state
from deploy.models.resolve import resolve_model

__all__ = ["KNOWN_MODELS", "FetchReport", "KnownModel", "ModelError", "fetch_model", "model_state", "resolve_model"]
