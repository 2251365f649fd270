"""Commands in number order. One that came early waits for those before it; one that came twice is dropped."""

from scheduler.messages import Command


class CommandLine:
    """`last_command` is the number of the last one taken; the first has number 1."""

    def __init__(self) -> None:
        self.last_command = 0
        self._waiting: dict[int, Command] = {}

    def post(self, command: Command) -> None:
        if command.number > self.last_command:
            self._waiting.setdefault(command.number, command)

    def take(self) -> Command | None:
        """The next command in order, or None when it hasn't come yet."""
        if not self._waiting:
            return None
        command = self._waiting.pop(self.last_command + 1, None)
        if command is not None:
            self.last_command += 1
        return command
