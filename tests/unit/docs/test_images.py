"""The images are built for devices that there are extras and locked requirements for."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_worker_image_and_the_gpu_profile_use_extras_that_exist() -> None:
    dockerfile = (ROOT / "scripts" / "docker" / "Dockerfile").read_text()
    (names,) = re.findall(r"^ +(\S+)\) pip install .*/requirements/\$ACCELERATOR\.txt", dockerfile, re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    compose = (ROOT / "docker-compose.yml").read_text()
    defaults = set(re.findall(r"DRUMLINE_ACCELERATOR:-(\w+)", compose))

    assert set(names.split("|")) == {"cuda12", "cuda13", "tpu"}
    assert set(names.split("|")) <= extras.keys()
    assert defaults <= extras.keys()
    assert "ARG ACCELERATOR=cpu" in dockerfile
    assert 'ACCELERATOR: "${DRUMLINE_ACCELERATOR:-cuda12}"' in compose
