"""The pages that an engine reported as missing, and how many of them are missing still."""

from scheduler.admission.request_record import RequestRecord


class Shortage:
    """Of one group. All figures are pages.

    A report counts those whose order to leave it knew as gone, and everybody else by what they hold and their margin.
    """

    def __init__(self) -> None:
        self.reported = 0
        self._free_then = 0
        self._last_command = 0

    def report(self, pages: int, *, free: int, last_command: int) -> None:
        """What the engine says, with so many free, having carried out that command."""
        self.reported = max(0, pages)
        self._free_then = free
        self._last_command = last_command

    def is_counted(self, record: RequestRecord) -> bool:
        """The report asks for this seated record's pages."""
        return record.placed_by <= self._last_command and not 0 < record.left_by <= self._last_command

    def will_help(self, record: RequestRecord) -> bool:
        """Its order to leave came after the report."""
        return record.left_by > self._last_command

    def unseat(self, record: RequestRecord, *, relief: int, held: int) -> None:
        """It has left: what was asked for it is asked no more, and what it held is no news when it comes free."""
        if self.is_counted(record):
            self.reported -= relief
            self._free_then += held

    def left(self, free: int, coming: int) -> int:
        """Still missing, with so many free now and so many coming from those who will help."""
        return max(0, self.reported - max(0, free - self._free_then) - coming)
