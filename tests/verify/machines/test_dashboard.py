"""The dashboard in a browser: real figures of this checkout, every benchmark to be seen, nothing in the console."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).resolve().parents[3]
_PATIENCE_SECONDS = 30
_SETTINGS = {"PYBROKER_ASV_SECONDS": "0.2", "PYBROKER_ASV_ROUNDS": "1"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the suite was run on this checkout, and its site."""
    where = tmp_path_factory.mktemp("asv")
    words = [sys.executable, "-m", "bench.asv.dashboard", "--here", "--quick", "--directory", str(where)]
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | _SETTINGS, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return where


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        del format, arguments


@pytest.fixture(scope="module")
def address(directory: Path) -> Iterator[str]:
    """The site, served on the loopback device."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(directory / "html")))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Chromium without a window, which keeps all that goes to its console."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium or chromedriver is not installed: scripts/bootstrap site")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Chromium has no sandbox for root, and shared memory may be small.
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1000"):
        options.add_argument(word)
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def benchmarks(directory: Path) -> list[str]:
    """Names of everything that was measured."""
    table = json.loads((directory / "results" / "benchmarks.json").read_text())
    names = [name for name in table if name != "version"]
    assert len(names) >= 10
    return names


def wait(browser: webdriver.Chrome, condition: Any) -> None:
    WebDriverWait(browser, _PATIENCE_SECONDS).until(condition)


def console(browser: webdriver.Chrome) -> list[str]:
    """What came since the last time."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def test_every_benchmark_has_figures(directory: Path, benchmarks: list[str]) -> None:
    (machine,) = (each for each in (directory / "results").iterdir() if each.is_dir())
    (result,) = (each for each in machine.glob("*.json") if each.name != "machine.json")
    document = json.loads(result.read_text())
    place = document["result_columns"].index("result")
    for name in benchmarks:
        values = document["results"][name][place]
        # A figure that was left out is no number; one that failed is none.
        assert all(value is not None for value in values), (name, values)
        given = [value for value in values if not math.isnan(value)]
        left_out = len(values) - len(given)
        assert min(given) > 0, (name, values)
        # One of engine, backend and durability at a time: four of eight.
        assert left_out == (len(values) // 2 if name.startswith(("loads.Produce", "loads.Fetch")) else 0), (
            name,
            values,
        )


def test_the_grid_shows_every_benchmark(browser: webdriver.Chrome, address: str, benchmarks: list[str]) -> None:
    browser.get(f"{address}/index.html")
    wait(browser, lambda seen: seen.find_elements(By.CSS_SELECTOR, "#summarygrid-display canvas"))
    shown = browser.find_element(By.ID, "summarygrid-display").get_attribute("innerHTML") or ""
    assert [name for name in benchmarks if f"#{name}" not in shown] == []
    assert console(browser) == []


def test_every_benchmark_has_a_graph(browser: webdriver.Chrome, address: str, benchmarks: list[str]) -> None:
    for name in benchmarks:
        browser.get(f"{address}/index.html#{name}")
        wait(browser, lambda seen: seen.find_elements(By.CSS_SELECTOR, "#main-graph canvas.flot-overlay"))
        assert name in (browser.find_element(By.ID, "title").text), name
    assert console(browser) == []


@pytest.mark.parametrize("page", ["index.html#/summarylist", "index.html#/regressions"])
def test_the_other_pages_have_no_errors(browser: webdriver.Chrome, address: str, page: str) -> None:
    browser.get(f"{address}/{page}")
    wait(browser, lambda seen: seen.execute_script("return jQuery.active === 0"))
    assert console(browser) == []


def test_machines_and_profiles_are_beside_it(browser: webdriver.Chrome, address: str, benchmarks: list[str]) -> None:
    browser.get(f"{address}/index.html")
    wait(browser, lambda seen: seen.find_elements(By.LINK_TEXT, "Machines"))
    browser.find_element(By.LINK_TEXT, "Machines").click()
    wait(browser, lambda seen: seen.title == "pybroker: machines and profiles")
    first_cells = {cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "tbody td:first-child")}
    assert first_cells == set(benchmarks)
    heads = " ".join(head.text for head in browser.find_elements(By.CSS_SELECTOR, "thead th"))
    assert "generic" in heads
    assert "auto" in heads
    assert console(browser) == []
