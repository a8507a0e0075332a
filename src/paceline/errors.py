"""The one error that a user's setting causes."""


class SettingError(Exception):
    """A setting cannot be honoured. The command line prints it on one line and exits with 2.

    `setting` is the name as it is written on the command line, for example `data.root`.
    """

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(setting, message)
        self.setting = setting
        self.message = message

    def __str__(self) -> str:
        return f"{self.setting}: {' '.join(self.message.split())}"
