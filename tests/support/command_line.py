"""The command line in the test's own process."""

from dataclasses import dataclass

import pytest

from drumline.cli.main import main


@dataclass
class Cli:
    """The command, run in this process against the server that its environment names."""

    capture: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def __call__(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as caught:
            main([*arguments])
        self.out, self.err = self.capture.readouterr()
        return int(caught.value.code or 0)
