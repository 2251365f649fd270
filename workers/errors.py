"""Errors of the workers floor.

WorkerError
├── ModelError              the model folder cannot be served
│   ├── UnsupportedModel    sound, but not of a kind this project computes
│   └── BrokenModel         a file or tensor is missing, truncated or of the wrong shape
├── CannotPartition         the ranks asked for do not divide this model
├── BackendUnavailable      the kernels asked for need something that is not installed
├── DoesNotFit              the memory asked for is not there
└── RankDisagreement        a plan contradicts what this rank knows: the group must stop
"""


class WorkerError(Exception):
    """Root of this floor's errors."""


class ModelError(WorkerError):
    """The model folder cannot be served; the message is one line and names the file or the setting."""


class UnsupportedModel(ModelError):
    """The architecture or one of its settings is not implemented; the message names what is."""


class BrokenModel(ModelError):
    """A file or a tensor of the model folder is missing, truncated, or not of the shape or type its config demands."""


class CannotPartition(WorkerError):
    """No dealing of heads to the ranks asked for exists; the message names the bound."""


class BackendUnavailable(WorkerError):
    """The backend named in the spec cannot run here; the message says what to install or choose."""


class DoesNotFit(WorkerError):
    """The pool or the arena asked for exceeds the memory at hand; the message says what would fit."""


class RankDisagreement(WorkerError):
    """A plan with the wrong number, or one that names what this rank does not know."""
