"""What tests of several packages share: the default model, fetched once into the user's cache."""

from pathlib import Path

import pytest

from deploy.config import read_environment
from deploy.models import fetch_model


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The folder of smollm2-135m. For tests marked `model`; the first one ever downloads 93 MB."""
    environment = read_environment()
    return fetch_model(
        "smollm2-135m", cache_dir=environment.cache_dir, pip_environment=dict(environment.variables)
    ).folder
