"""ASV's site, made to stand by itself: the libraries that its page takes from content delivery networks lie beside it.

They come from npm, once, into the cache that the Kafka jars are in as well. Can fail: `SiteFailed`, with what to do.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.harness.kafka import cache_root

#: Name in ASV's page, package of npm, file in it.
_LIBRARIES = (
    ("jquery-3.3.1.min.js", "jquery@3.3.1", "dist/jquery.min.js"),
    ("jquery.flot.min.js", "flot@0.8.3", "jquery.flot.js"),
    ("jquery.flot.time.min.js", "flot@0.8.3", "jquery.flot.time.js"),
    ("jquery.flot.selection.min.js", "flot@0.8.3", "jquery.flot.selection.js"),
    ("jquery.flot.categories.min.js", "flot@0.8.3", "jquery.flot.categories.js"),
    ("jquery.flot.orderBars.js", "flot-orderbars@1.0.0", "js/jquery.flot.orderBars.js"),
    ("stupidtable.min.js", "stupid-table-plugin@1.1.3", "stupidtable.min.js"),
    ("md5.min.js", "blueimp-md5@2.19.0", "js/md5.min.js"),
    ("bootstrap.min.js", "bootstrap@3.1.1", "dist/js/bootstrap.min.js"),
    ("bootstrap.min.css", "bootstrap@3.1.1", "dist/css/bootstrap.min.css"),
)
_LAST_ITEM = re.compile(r'(<li id="nav-li-regressions">.*?</li>)', re.DOTALL)
_REMOTE = re.compile(r'<(?:script|link rel="stylesheet")[^>]*"https?://[^"]*"')


class SiteFailed(RuntimeError):
    """The site cannot be made; the text says why and what to do."""


def _package(name: str, cache: Path) -> Path:
    """The archive of a package, fetched when it is not there."""
    archive = cache / f"{name.replace('@', '-')}.tgz"
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise SiteFailed("npm is not installed; it fetches the libraries of the site: scripts/bootstrap site")
        cache.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([npm, "pack", "--silent", name], cwd=cache, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not archive.exists():
            raise SiteFailed(f"npm did not fetch {name}: {done.stderr.strip()}")
    return archive


def _extract(archive: Path, member: str, to: Path) -> None:
    with tarfile.open(archive) as packed:
        source = packed.extractfile(f"package/{member}")
        if source is None:
            raise SiteFailed(f"{archive} has no {member}")
        to.write_bytes(source.read())


def make_local(html_dir: Path, cache: Path | None = None) -> None:
    """Put the libraries into `vendor/`, have the page use those, and link the page about machines."""
    page = html_dir / "index.html"
    text = page.read_text(encoding="utf-8")
    vendor = html_dir / "vendor"
    vendor.mkdir(exist_ok=True)
    for name, package, member in _LIBRARIES:
        # The part behind the address names the expected contents of the network's copy. npm has already checked its own
        # copy against it.
        pattern = re.compile(
            rf'(src|href)="https://[^"]*/{re.escape(name)}"(?: (?:integrity|crossorigin|referrerpolicy)="[^"]*")*'
        )
        text, count = pattern.subn(rf'\1="vendor/{name}"', text)
        if count != 1:
            raise SiteFailed(f"this version of ASV has another page: {name} is in it {count} times")
        _extract(_package(package, cache or cache_root() / "asv-site"), member, vendor / name)
    left = _REMOTE.findall(text)
    if left:
        raise SiteFailed(f"this version of ASV has another page: it takes more from elsewhere: {left}")
    text, count = _LAST_ITEM.subn(r'\1\n	<li><a href="machines.html">Machines</a></li>', text)
    if count != 1:
        raise SiteFailed("this version of ASV has another page: its menu has changed")
    page.write_text(text, encoding="utf-8")
