"""A flame graph as one SVG file: columns are stacks, their width is the number of samples, the root is at the bottom.

A click on a frame makes it as wide as the picture, and a click on the bottom one goes back. The text of a frame that is
too narrow is in its tooltip. The file needs nothing but a browser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

_WIDTH, _ROW_HEIGHT, _TOP = 1200, 17, 40
_CHARACTER_WIDTH = 6.6
_SMALLEST_WIDTH = 0.3
#: Hue and the range of lightness: the kernel, C, Python, and the row of threads.
_HUES = {"kernel": 28, "c": 48, "python": 205, "thread": 130}
_STYLE = (
    "text{font:11px monospace;pointer-events:none} text.title{font-size:16px} "
    "g.frame{cursor:pointer} g.frame:hover rect{stroke:#000}"
)
_SCRIPT = """
const frames = [...document.querySelectorAll("g.frame")];
for (const frame of frames) frame.box = ["x", "w", "level"].map(name => Number(frame.dataset[name]));
function zoom(x, w, level) {
  for (const frame of frames) {
    const [fx, fw, flevel] = frame.box;
    const above = flevel < level && fx <= x + 1e-6 && fx + fw >= x + w - 1e-6;
    const inside = flevel >= level && fx >= x - 1e-6 && fx + fw <= x + w + 1e-6;
    frame.style.display = above || inside ? "" : "none";
    const left = above ? 0 : (fx - x) / w * WIDTH, width = above ? WIDTH : fw / w * WIDTH;
    frame.setAttribute("transform", `translate(${left},${frame.dataset.y})`);
    frame.querySelector("rect").setAttribute("width", width);
    const text = frame.querySelector("text"), room = Math.floor((width - 6) / CHARACTER);
    text.textContent = room < 3 ? "" : frame.dataset.name.slice(0, room);
  }
}
for (const frame of frames) frame.addEventListener("click", () => zoom(...frame.box));
zoom(0, WIDTH, 0);
""".replace("WIDTH", str(_WIDTH)).replace("CHARACTER", str(_CHARACTER_WIDTH))


@dataclass
class _Frame:
    """A place in the tree: samples that passed through it, and what was called from there."""

    samples: int = 0
    callees: dict[str, _Frame] = field(default_factory=dict)


@dataclass(frozen=True)
class _Box:
    name: str
    level: int
    x: float
    width: float
    samples: int


def svg(stacks: Mapping[tuple[str, ...], int], title: str) -> str:
    """The text of the file. `stacks` are frames from the root on, with their samples."""
    root = _tree(stacks)
    boxes = list(_boxes("all", root, 0, 0.0, _WIDTH / max(root.samples, 1)))
    height = _TOP + (max(box.level for box in boxes) + 1) * _ROW_HEIGHT + 4
    frames = "\n".join(_group(box, height, root.samples) for box in boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}">\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>\n'
        f'<text x="{_WIDTH // 2}" y="24" class="title" text-anchor="middle">{escape(title)}</text>\n'
        f"{frames}\n<script><![CDATA[{_SCRIPT}]]></script>\n</svg>\n"
    )


def _tree(stacks: Mapping[tuple[str, ...], int]) -> _Frame:
    root = _Frame()
    for frames, samples in stacks.items():
        root.samples += samples
        place = root
        for name in frames:
            place = place.callees.setdefault(name, _Frame())
            place.samples += samples
    return root


def _boxes(name: str, frame: _Frame, level: int, x: float, scale: float) -> Iterator[_Box]:
    """A frame and all above it. Not recursive: Python's stacks can be deeper than Python's own limit."""
    waiting = [(name, frame, level, x)]
    while waiting:
        name, frame, level, x = waiting.pop()
        if frame.samples * scale < _SMALLEST_WIDTH and level > 0:
            continue
        yield _Box(name, level, x, frame.samples * scale, frame.samples)
        for callee, inner in sorted(frame.callees.items()):
            waiting.append((callee, inner, level + 1, x))
            x += inner.samples * scale


def _colour(box: _Box) -> str:
    if box.level <= 1:
        hue = _HUES["thread"]
    elif box.name.endswith("[kernel]"):
        hue = _HUES["kernel"]
    else:
        hue = _HUES["python" if ".py:" in box.name or "<frozen" in box.name else "c"]
    return f"hsl({hue},70%,{72 + crc32(box.name.encode()) % 13}%)"


def _group(box: _Box, height: int, total: int) -> str:
    y = height - (box.level + 1) * _ROW_HEIGHT - 2
    share = 100 * box.samples / max(total, 1)
    name = escape(box.name)
    tooltip = f"{name}: {box.samples} samples, {share:.1f} %"
    room = int((box.width - 6) / _CHARACTER_WIDTH)
    shown = escape(box.name[:room]) if room >= 3 else ""
    return (
        f'<g class="frame" data-name="{name}" data-level="{box.level}" data-x="{box.x:.4f}" data-w="{box.width:.4f}" '
        f'data-y="{y}" transform="translate({box.x:.2f},{y})"><title>{tooltip}</title>'
        f'<rect width="{box.width:.2f}" height="{_ROW_HEIGHT - 1}" fill="{_colour(box)}"/>'
        f'<text x="3" y="12">{shown}</text></g>'
    )
