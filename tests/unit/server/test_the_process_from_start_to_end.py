"""`edgeseek serve` as a process: listens, loads, tells systemd, drains, ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from edgeseek.settings import Settings
from tests.unit.server.local import DEADLINE_S, command, post, wait_until

Package = tuple[Path, Settings]
LONG = {"prompt": "the model", "max_tokens": 480, "ignore_eos": True}


def test_sigterm_lets_the_running_answer_end_and_refuses_new_ones(package: Package) -> None:
    with command(package, "--api-key-file", "/dev/null") as refused:
        assert refused.wait() == 2
    with command(package) as server:
        server.ready()
        url = server.url
        with httpx.stream(
            "POST",
            f"{url}/v1/completions",
            json={"model": "tiny", **LONG, "stream": True, "n": 16},
            timeout=DEADLINE_S,
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.signal(signal.SIGTERM)
            server.line("stopping; 1 requests may end within 30 s")
            late = post(url, LONG)
            assert late.status_code == 503
            assert late.headers["retry-after"] == "30"
            assert late.json()["error"]["code"] == "stopping"
            assert httpx.get(f"{url}/health").json()["status"] == "stopping"
            events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        reasons = [event["choices"][0]["finish_reason"] for event in events]
        assert reasons.count("length") == 16
        assert server.wait() == 0


def test_what_runs_longer_than_the_drain_is_cut_off_with_an_error(package: Package) -> None:
    with command(package, "--drain-seconds", "0.2", "--context", "512") as server:
        server.ready()
        many = {"model": "tiny", **LONG, "stream": True, "n": 16, "temperature": 2, "logprobs": 5}
        ends: list[str] = []

        def ask() -> None:
            try:
                ends.append(httpx.post(f"{server.url}/v1/completions", json=many, timeout=DEADLINE_S).text)
            except httpx.HTTPError as error:
                ends.append(repr(error))

        asking = [threading.Thread(target=ask) for _ in range(12)]
        for thread in asking:
            thread.start()
        wait_until(lambda: httpx.get(f"{server.url}/health").json()["active"] == 12)
        server.signal(signal.SIGTERM)
        server.line("stopping")
        assert server.wait() == 0
        for thread in asking:
            thread.join()
        cut_off = [end for end in ends if "[DONE]" not in end]
        assert cut_off
        assert all("the engine was closed" in end for end in cut_off)


def test_a_second_signal_ends_it_now(package: Package) -> None:
    with command(package, "--drain-seconds", "3600") as server:
        server.ready()
        with httpx.stream(
            "POST",
            f"{server.url}/v1/completions",
            json={"model": "tiny", **LONG, "stream": True, "n": 16, "logprobs": 5},
            timeout=DEADLINE_S,
        ) as answer:
            # Held, since the connection goes with it.
            lines = answer.iter_lines()
            next(lines)
            server.signal(signal.SIGINT)
            server.line("stopping; 1 requests")
            server.signal(signal.SIGTERM)
            assert server.wait() == 128 + signal.SIGINT


def test_systemd_hears_ready_then_the_watchdog_then_stopping(package: Package, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(DEADLINE_S)
        environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "300000"}
        with command(package, **environ) as server:
            heard: list[str] = []
            while heard.count("WATCHDOG=1") < 3:
                heard.append(manager.recv(4096).decode())
            assert heard[0] == "STATUS=loading"
            assert heard.index("READY=1") < heard.index("WATCHDOG=1")
            server.signal(signal.SIGTERM)
            while heard[-1] != "STOPPING=1":
                heard.append(manager.recv(4096).decode())
            assert server.wait() == 0


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_error(package: Package) -> None:
    with command(package, "--context", "100000") as server:
        assert server.wait() == 2
        assert "a context of 100000 tokens was asked for" in server.lines[-1]


def test_a_port_in_use_is_named(package: Package) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with command(package, "--port", str(port)) as server:
            assert server.wait() == 2
            assert f"port {port} of 127.0.0.1 cannot be had" in server.lines[-1]


def test_the_log_has_a_line_for_each_request_without_text_or_key(package: Package, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsk-secret-1\n")
    with command(package, "--api-key-file", str(keys), EDGESEEK_API_KEY="sk-secret-2") as server:
        server.ready()
        for key in ("sk-secret-1", "sk-secret-2", "sk-guess"):
            httpx.post(
                f"{server.url}/v1/completions?q=sk-query",
                json={"model": "tiny", "prompt": "confidential", "max_tokens": 2},
                headers={"Authorization": f"Bearer {key}"},
                timeout=DEADLINE_S,
            )
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        lines = [line for line in server.lines if " POST " in line]
        assert [line.split(" POST ")[1].split()[1] for line in lines] == ["200", "200", "401"]
        assert "completion=2" in lines[0]
        assert not any(word in "\n".join(server.lines) for word in ("sk-", "confidential"))


def test_the_configuration_file_is_read_and_unknown_keys_are_refused(
    package: Package, tmp_path: Path
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("context = 64\nmax-queue = 3\n")
    with command(package, "--config", str(file)) as server:
        server.ready()
        assert httpx.get(f"{server.url}/health").json()["context"] == 64
    file.write_text("contxt = 64\n")
    with command(package, "--config", str(file)) as server:
        assert server.wait() == 2
        assert "unknown key 'contxt'" in server.lines[-1]


def test_without_the_extra_the_install_line_is_named() -> None:
    script = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'uvicorn' else found(name)\n"
        "from edgeseek.cli import main; sys.exit(main(['serve', 'smollm2-135m']))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "pip install 'edgeseek[server]'" in found.stderr


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_other_addresses_than_loopback_need_a_key_or_insecure(package: Package, address: str) -> None:
    with command(package, "--host", address) as server:
        assert server.wait() == 2
        assert "--insecure" in server.lines[-1]
