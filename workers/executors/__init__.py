"""Executors without Ray: the ranks of a group in this process, or in processes of this host."""

from workers.executors.local import LocalExecutor
from workers.executors.process import ProcessExecutor
from workers.executors.rank_specs import new_collective_spec, specs_of_group

__all__ = ["LocalExecutor", "ProcessExecutor", "new_collective_spec", "specs_of_group"]
