"""The report in a real browser: every plot is drawn, every button works, and the console stays empty."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from simulator.record import RunRecord
from simulator.report.html import render
from tests.simulator.builders import run_record
from tests.simulator.made_up_runs import (
    baseline_record,
    hotspot_record,
    large_record,
    many_record,
    week_record,
)

NAMES = ("chromium", "chromium-browser", "google-chrome")

# Works the page as a reader would, and leaves what happened in attributes that the dumped page shows.
VISITOR = """
<script>
const visit = setInterval(async () => {
  if (!document.documentElement.dataset.ready) return;
  clearInterval(visit);
  for (const button of document.querySelectorAll("button[data-choice]")) button.click();
  const times = [...document.querySelectorAll(".plot")].filter((plot) => !plot.id.startsWith("waterfall"));
  await Plotly.relayout(times[0], { "xaxis.range": [1, 2] });
  await new Promise((resolve) => setTimeout(resolve, 500));
  const followed = times.filter((plot) => plot.layout.xaxis.range[1] === 2).length;
  const wide = [...document.querySelectorAll(".plot")].filter((plot) => plot.scrollWidth > plot.clientWidth + 1);
  document.body.dataset.visited = `${followed} of ${times.length} followed, ${wide.length} too wide`;
}, 50);
</script>
"""

# No window is narrower than 500 px here, but the page may be: a phone's. Tables may be scrolled in their section.
NARROW = """
<script>
const look = setInterval(async () => {
  if (!document.documentElement.dataset.ready) return;
  clearInterval(look);
  document.body.style.width = "360px";
  document.body.style.margin = "0";
  window.dispatchEvent(new Event("resize"));
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const out = [...document.querySelectorAll("main *")].filter(
    (each) => !each.closest("svg, table") && each.getBoundingClientRect().right > 361);
  const names = new Set(out.map((each) => each.className || each.tagName));
  document.body.dataset.visited = `outside: ${[...names].join(" ")}`;
}, 50);
</script>
"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        message = f"no browser: none of {', '.join(NAMES)} is installed"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def visit(
    browser: str, page: str, folder: Path, visitor: str = VISITOR, width: int = 1400
) -> tuple[str, list[str]]:
    """The page's DOM after all scripts ran, and what the console said."""
    path = folder / "report.html"
    path.write_text(page.replace("</body>", visitor + "</body>"), encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},1000", "--virtual-time-budget=30000", "--enable-logging=stderr", "--dump-dom",
        path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)  # noqa: S603
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


RUNS: dict[str, list[RunRecord]] = {
    "against": [hotspot_record(), baseline_record()],
    "seeds": [hotspot_record(seed=s) for s in (1, 2)] + [baseline_record(seed=s) for s in (1, 2)],
    "large": [large_record()],
    "week": [week_record()],
    "many": [many_record()],
    "idle": [run_record()],
    "evil": [
        hotspot_record(scenario='<img src=x onerror="console.error(1)">', label="<b onclick=1>&amp;</b>")
    ],
}


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_every_plot_is_drawn_and_the_console_stays_empty(
    runs: list[RunRecord], browser: str, tmp_path: Path
) -> None:
    page = render(runs)
    dom, console = visit(browser, page, tmp_path)
    assert console == []
    wanted = set(re.findall(r'class="plot" id="([^"]+)"', page))
    drawn = set(re.findall(r'class="plot js-plotly-plot" id="([^"]+)"', dom))
    assert wanted
    assert drawn == wanted
    assert dom.count('class="main-svg"') >= len(wanted)
    times = len([name for name in wanted if not name.startswith("waterfall")])
    assert f'data-visited="{times} of {times} followed, 0 too wide"' in dom


@pytest.mark.parametrize("name", ["against", "many", "idle"])
def test_nothing_stands_outside_of_a_narrow_window(name: str, browser: str, tmp_path: Path) -> None:
    dom, console = visit(browser, render(RUNS[name]), tmp_path, NARROW, width=500)
    assert console == []
    assert re.findall(r'data-visited="([^"]*)"', dom) == ["outside: "]
