"""What can go wrong between machines.

ClusterError(RuntimeError)
├── CannotPlace       no node has what a group needs
├── ClusterFailed     a group did not start, or is lost
└── ClusterNotFound   there is no cluster of that id on this Ray
"""


class ClusterError(RuntimeError):
    """The cluster cannot do what was asked."""


class CannotPlace(ClusterError):  # one Error, the root
    """The ranks of a group find no room."""


class ClusterFailed(ClusterError):
    """A group did not become ready, or ended; the message is fit to be shown."""


class ClusterNotFound(ClusterError):
    """No admission actor answers to that cluster id."""
