"""Where the server is and who asks: arguments, else the environment, else what `drumline up` left on this machine."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from drumline.errors import ConfigError

CLIENT_FILE = "client.json"
_HINT = "start a server here with `drumline up`, or set DRUMLINE_URL and DRUMLINE_TOKEN"


@dataclass(frozen=True, slots=True)
class Config:
    """The address and the token of a server."""

    url: str
    """Scheme, host and port, without a final slash."""
    token: SecretStr

    @classmethod
    def load(
        cls, url: str | None = None, token: str | None = None, *, environ: Mapping[str, str] | None = None
    ) -> "Config":
        """What is given, else DRUMLINE_URL and DRUMLINE_TOKEN, else `client.json` of the data directory.

        A token from the file goes only to the server that the file names. Raises ConfigError where one is missing.
        """
        environ = os.environ if environ is None else environ
        url = url or environ.get("DRUMLINE_URL") or None
        token = token or environ.get("DRUMLINE_TOKEN") or None
        file = data_directory(environ) / CLIENT_FILE
        if url is None or token is None:
            file_url, file_token = _read(file)
            url = url or file_url
            if token is None and file_url is not None and check_url(str(url)) == check_url(file_url):
                token = file_token
        if url is None:
            raise ConfigError("no Drumline server is known", _HINT)
        if token is None:
            raise ConfigError(f"no token for the server at {url}", "set DRUMLINE_TOKEN, or ask an admin for one")
        return cls(check_url(url), check_token(token))


def data_directory(environ: Mapping[str, str]) -> Path:
    """Where `drumline up` keeps its files: DRUMLINE_DATA_DIR, else `~/.drumline`."""
    chosen = environ.get("DRUMLINE_DATA_DIR")
    return Path(chosen) if chosen else Path.home() / ".drumline"


def check_token(token: str) -> SecretStr:
    """`token` as headers can carry it. Raises ConfigError naming a character that no token has, nothing else of it."""
    token = token.strip()
    odd = next((character for character in token if not "!" <= character <= "~"), None)
    if odd is not None:
        raise ConfigError(
            f"the token holds {odd!a}, which no token does", "copy it again, into DRUMLINE_TOKEN or where it was given"
        )
    if not token:
        raise ConfigError("the token is empty", "set DRUMLINE_TOKEN, or ask an admin for one")
    return SecretStr(token)


def check_url(url: str) -> str:
    """`url` without path and final slash. Raises ConfigError unless it is an http or https address."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
        valid = valid and all("!" <= character <= "~" for character in parts.netloc)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        valid = False
    if not valid or parts.query or parts.path.strip("/"):
        raise ConfigError(f"{url!r} is no server address", "give scheme, host and port, such as http://127.0.0.1:7700")
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"{parts.scheme}://{host}{port}"


def _read(file: Path) -> tuple[str | None, str | None]:
    try:
        stored = json.loads(file.read_text("utf-8"))
        return str(stored["url"]), str(stored["token"])
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", "remove it and start `drumline up` again") from None
