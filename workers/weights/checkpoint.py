"""A model folder's safetensors, one file or shards with an index, read by slices.

Only the bytes of the slices asked for are read; every fault is one line that names the file and the tensor.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from workers.errors import BrokenModel
from workers.model.partition import Span

_DTYPES = ("BF16", "F16", "F32")
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


class Checkpoint:
    """Opens files as they are needed and keeps them mapped until closed; a context manager."""

    def __init__(self, model_dir: str | Path) -> None:
        self._folder = Path(model_dir)
        self._files: dict[str, str] | None = self._read_index()
        self._open: dict[str, Any] = {}

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._open.clear()

    def read(
        self, name: str, shape: Sequence[int], *, rows: Span | None = None, columns: Span | None = None
    ) -> torch.Tensor:
        """The slice [rows, columns] of a tensor whose whole shape must be `shape`; None means all.

        The result may be a view of the mapped file: copy what is to be kept.
        """
        path, handle = self._file_of(name)
        try:
            tensor = handle.get_slice(name)
        except SafetensorError:
            raise BrokenModel(f"{path}: tensor {name} is missing") from None
        if list(tensor.get_shape()) != list(shape):
            raise BrokenModel(f"{path}: tensor {name} has shape {tensor.get_shape()}, the config demands {list(shape)}")
        if tensor.get_dtype() not in _DTYPES:
            raise BrokenModel(f"{path}: tensor {name} is {tensor.get_dtype()}; supported are {', '.join(_DTYPES)}")
        part = slice(None) if rows is None else slice(rows.start, rows.end)
        try:
            taken: torch.Tensor = tensor[part] if columns is None else tensor[part, slice(columns.start, columns.end)]
        except SafetensorError as error:
            raise BrokenModel(f"{path}: tensor {name} cannot be read: {error}") from None
        return taken

    def _read_index(self) -> dict[str, str] | None:
        """Tensor name to file name; None when one file holds all."""
        path = self._folder / _INDEX
        if not path.exists():
            return None
        try:
            mapped = json.loads(path.read_bytes())["weight_map"]
            return {str(name): str(file) for name, file in mapped.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BrokenModel(f"{path}: not a readable weight index: {error!r}") from None

    def _file_of(self, name: str) -> tuple[Path, Any]:
        file = _SINGLE
        if self._files is not None:
            if name not in self._files:
                raise BrokenModel(f"{self._folder / _INDEX}: tensor {name} is missing")
            file = self._files[name]
        path = self._folder / file
        if file not in self._open:
            if Path(file).name != file:
                raise BrokenModel(f"{self._folder / _INDEX}: shard {file!r} of tensor {name} is not a plain file name")
            self._open[file] = _open_file(path, name)
        return path, self._open[file]


def _open_file(path: Path, name: str) -> Any:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise BrokenModel(f"{path}: no such file; it should hold tensor {name}") from None
    except (SafetensorError, OSError) as error:
        raise BrokenModel(f"{path}: damaged or truncated, while looking for tensor {name}: {error}") from None
