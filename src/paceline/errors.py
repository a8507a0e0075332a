"""Error that a user's setting causes."""


class SettingError(Exception):
    """Error of an invalid setting. The command line prints it on one line and exits with 2.

    `setting`: its name on the command line, for example `data.root`.
    """

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(setting, message)
        self.setting = setting
        self.message = message

    def __str__(self) -> str:
        return f"{self.setting}: {' '.join(self.message.split())}"
