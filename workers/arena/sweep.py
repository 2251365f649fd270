"""What a crash leaves in shared memory is removed at the next start, before memory is counted and a rank makes its own.

Light: who calls it needs no kernels.
"""

import logging
from pathlib import Path

from workers.arena.budget import remove_dead_budget
from workers.arena.names import BUDGET_PREFIX, SEGMENT_PREFIX
from workers.arena.shared_file import SHM_FOLDER, remove_if_dead

_log = logging.getLogger(__name__)


def sweep_dead_segments(folder: Path = SHM_FOLDER) -> list[str]:
    """Remove this user's arena segments and budgets whose owners are gone. Returns the names of the segments."""
    removed = [path.name for path in sorted(folder.glob(f"{SEGMENT_PREFIX}*")) if remove_if_dead(path)]
    for path in folder.glob(f"{BUDGET_PREFIX}*"):
        remove_dead_budget(path)
    if removed:
        _log.warning("removed what dead ranks had left of parked pages: %s", ", ".join(removed))
    return removed
