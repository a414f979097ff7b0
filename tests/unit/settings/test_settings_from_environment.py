"""Settings are read from the mapping they are given, with exact defaults and clear refusals."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import edgeseek.settings as settings_module
from edgeseek.errors import UsageError
from edgeseek.settings import ISA_NAMES, Settings

HOME = {"HOME": "/home/ada"}


def test_defaults_follow_the_home_folder() -> None:
    settings = Settings.from_environment(HOME)
    assert settings.cache_dir == Path("/home/ada/.cache/edgeseek")
    assert settings.packages_dir == Path("/home/ada/.cache/edgeseek/packages")
    assert settings.downloads_dir == Path("/home/ada/.cache/edgeseek/downloads")
    assert settings.isa is None
    assert settings.threads is None
    assert settings.hf_endpoint == "https://huggingface.co"
    assert settings.hf_token is None
    assert settings.proc_root == Path("/proc")
    assert settings.sys_root == Path("/sys")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"EDGESEEK_HOME": "/data/models"}, "/data/models"),
        ({"EDGESEEK_HOME": "~/models"}, "/home/ada/models"),
        ({"EDGESEEK_HOME": "~"}, "/home/ada"),
        ({"EDGESEEK_HOME": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/edgeseek"),
        ({"EDGESEEK_HOME": "/data", "XDG_CACHE_HOME": "/xdg"}, "/data"),
        ({"XDG_CACHE_HOME": "relative/is/ignored"}, "/home/ada/.cache/edgeseek"),
    ],
)
def test_cache_folder_comes_from_the_first_variable_that_is_set(
    environ: dict[str, str], expected: str
) -> None:
    assert Settings.from_environment({**HOME, **environ}).cache_dir == Path(expected)


def test_a_relative_home_becomes_absolute_so_that_a_later_chdir_does_not_move_it() -> None:
    assert Settings.from_environment({"EDGESEEK_HOME": "models"}).cache_dir == Path.cwd() / "models"


@pytest.mark.parametrize("name", ISA_NAMES)
def test_every_instruction_set_is_accepted_in_any_case(name: str) -> None:
    assert Settings.from_environment({**HOME, "EDGESEEK_ISA": name.upper()}).isa == name


def test_threads_endpoint_and_token_are_read() -> None:
    settings = Settings.from_environment(
        {**HOME, "EDGESEEK_THREADS": " 8 ", "HF_ENDPOINT": "http://127.0.0.1:8000/", "HF_TOKEN": "hf_secret"}
    )
    assert settings.threads == 8
    assert settings.hf_endpoint == "http://127.0.0.1:8000"
    assert settings.hf_token == "hf_secret"
    assert "hf_secret" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("EDGESEEK_ISA", "sse9", "scalar, avx2, avxvnni, avx512, neon, neondot"),
        ("EDGESEEK_THREADS", "0", "from 1 to 1024"),
        ("EDGESEEK_THREADS", "-2", "from 1 to 1024"),
        ("EDGESEEK_THREADS", "2.5", "from 1 to 1024"),
        ("EDGESEEK_THREADS", "1025", "from 1 to 1024"),
        ("EDGESEEK_THREADS", "²", "from 1 to 1024"),
        ("EDGESEEK_THREADS", "9" * 5000, "from 1 to 1024"),
        ("EDGESEEK_THREADS", "many", "from 1 to 1024"),
        ("HF_ENDPOINT", "huggingface.co", "http:// or https://"),
        ("HF_ENDPOINT", "ftp://host", "http:// or https://"),
        ("HF_ENDPOINT", "http://[::1", "http:// or https://"),
    ],
)
def test_a_bad_value_names_the_variable_the_value_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(allowed)) as caught:
        Settings.from_environment({**HOME, name: value})
    assert str(caught.value).startswith(f"{name} is {value!r}")
    assert caught.value.exit_code == 2


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UsageError, match=r"EDGESEEK_HOME is .* which is a file"):
        Settings.from_environment({"EDGESEEK_HOME": str(file)})


def test_api_keys_are_split_at_commas_and_not_shown() -> None:
    settings = Settings.from_environment({**HOME, "EDGESEEK_API_KEY": " first, second,,"})
    assert settings.api_keys == ("first", "second")
    assert "first" not in repr(settings)


def test_settings_are_frozen_and_refuse_unknown_fields() -> None:
    settings = Settings.from_environment(HOME)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.threads = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.with_changes(thread=4)
    assert settings.with_changes(threads=4).threads == 4


def test_the_module_docstring_documents_every_variable_it_reads() -> None:
    source = Path(settings_module.__file__).read_text()
    read = set(re.findall(r'_value\(env, "([A-Z_]+)"\)', source)) - {"HOME"}
    assert read >= {
        "EDGESEEK_HOME",
        "XDG_CACHE_HOME",
        "EDGESEEK_ISA",
        "EDGESEEK_API_KEY",
        "EDGESEEK_THREADS",
        "HF_ENDPOINT",
        "HF_TOKEN",
    }
    documented = set(re.findall(r"^\| ([A-Z_]+) ", settings_module.__doc__ or "", re.MULTILINE))
    assert documented == read
