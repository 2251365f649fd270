"""What can go wrong before a model folder exists.

ModelError
├── UnknownModel       neither a known name, nor a folder, nor a hub id
├── DownloadFailed     the package index or the hub did not give it
├── WrongDigest        what was downloaded is not what was asked for
└── ConversionFailed   the GGUF does not hold what the catalogue promises
"""


class ModelError(RuntimeError):
    """The model cannot be had; the message is one line and names the way out."""


class UnknownModel(ModelError):
    pass


class DownloadFailed(ModelError):
    pass


class WrongDigest(ModelError):
    pass


class ConversionFailed(ModelError):
    pass
