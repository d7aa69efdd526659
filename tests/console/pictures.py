"""Pictures of each view of a real job's console, wide and narrow, light and dark: `make console-pictures`."""

import shutil
import tempfile
import time
from functools import cached_property
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from streaming.config import Settings, load
from streaming.records.model import Stream
from tests.console.conftest import BROWSERS, COMMAND, FLAGS, own_streams
from tests.support.events import attributes
from tests.support.running_job import Streams, running
from tests.support.scene import Scene, repeated

IMAGES: Final = Path(__file__).parents[2] / "docs/images"
SIZES: Final = ((1280, 800), (390, 800))
"""Width and height of the windows in pixels."""

_MARGIN: Final = 20
_COLOURS: Final = 128
_TRAFFIC_SECONDS: Final = 45
_PAIR: Final = "parent=orders&group=billing&client=globex-billing&topic=eu__acme__order__created"
VIEWS: Final = {
    "overview": "overview",
    "topics": "topics?parent=orders&topic=eu__acme__order__created",
    "search": "topics?parent=orders&how=lite&search=*__*__invoice__*&topic=us__initech__invoice__issued",
    "unreceived": "topics?parent=orders&show=unreceived",
    "clients": "clients?parent=orders&group=dashboards&client=eu-dashboard",
    "groups": "groups?parent=orders",
    "playground": "playground?dialect=lite&parent=orders&pattern=*__acme__order__**",
    "explain": f"explain?{_PAIR}",
    "live": "live",
    "letters": "letters",
    "timings": "timings",
}
"""Fragments of the addresses of the views, by the name of the picture."""


class DefaultStreams(Streams):
    """Topics with their default names."""

    @cached_property
    def settings(self) -> Settings:
        """The job's settings for these topics."""
        return load({"bootstrap_servers": self.bootstrap_servers, "checkpoint": str(self.checkpoint)})


def tell(scene: Scene) -> None:
    """Send groups, clients, topics, and entries that are rejected."""
    scene.group("audit", "orders")
    scene.group("dashboards", "orders")
    scene.group("billing", "orders", quota="500")
    scene.group("shipping", "orders", model="Exclusive")
    scene.send(Stream.GROUPS, attributes(group="archive", parent="orders"), "archive")
    scene.group("hot", "sensors")
    scene.asks("auditor", "audit", "orders", "eu__**", "us__**")
    for region in ("eu", "us"):
        scene.asks(f"{region}-dashboard", "dashboards", "orders", f"{region}__**")
    for tenant in ("acme", "globex", "initech"):
        scene.asks(f"{tenant}-billing", "billing", "orders", f"*__{tenant}__invoice__*", f"*__{tenant}__order__created")
    for number in range(1, 4):
        scene.asks(f"shipper-{number}", "shipping", "orders", "*__*__order__shipped")
    scene.asks("vault", "archive", "orders", "eu__acme__invoice__issued")
    scene.asks("alarm", "hot", "sensors", "*__temp")
    for region in ("ap", "eu", "us"):
        for tenant in ("acme", "globex", "hooli", "initech"):
            kinds = ("invoice__issued", "invoice__paid", "order__created", "order__shipped", "parcel__lost")
            scene.born("orders", *(f"{region}__{tenant}__{kind}" for kind in kinds))
    scene.born("sensors", *(f"{city}__temp" for city in ("berlin", "oslo", "porto")))
    scene.send(Stream.TOPICS, b'{"event": "CREATED", "liteTo', "orders")
    scene.born("orders", "  ")
    scene.asks("broken", "audit", "orders", "eu__**__created")
    scene.sent()


def picture(browser: Browser, address: str) -> Image.Image:
    """Return a view in all sizes side by side, light above dark."""
    wide = sum(width for width, _ in SIZES) + _MARGIN * (len(SIZES) + 1)
    high = SIZES[0][1]
    whole = Image.new("RGB", (wide, 2 * high + 3 * _MARGIN), "#808890")
    for row, scheme in enumerate(("light", "dark")):
        left = _MARGIN
        for width, height in SIZES:
            shown = Image.open(BytesIO(shot(browser, address, width, height, scheme)))
            whole.paste(shown, (left, _MARGIN + row * (high + _MARGIN)))
            left += width + _MARGIN
    return whole


def shot(browser: Browser, address: str, width: int, height: int, scheme: Any) -> bytes:
    """Return a view in a window as a PNG."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC")
    page = context.new_page()
    page.goto(address)
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_timeout(4_000 if "live" in address else 2_500)  # live changes
    page.get_by_text("The job is being asked.").wait_for(state="hidden")
    found: bytes = page.screenshot()
    context.close()
    return found


def save(image: Image.Image, name: str) -> None:
    """Write a picture with few colours: half of them for the frequent ones, half for all others."""
    counted: Any = image.getcolors(image.width * image.height)
    frequent = [colour for _, colour in sorted(counted, reverse=True)[: _COLOURS // 2]]
    others = image.quantize(_COLOURS // 2, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*chain.from_iterable(frequent), *others])
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(IMAGES / f"console-{name}.png", optimize=True)


def main() -> None:
    """Run a broker and a job, send events, and take the pictures."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    with tempfile.TemporaryDirectory() as folder, own_streams(Path(folder), DefaultStreams) as streams:
        scene = Scene(streams)

        def step(number: int) -> None:
            scene.born("orders", f"eu__acme__order__{number % 20:04}")
            scene.gone("orders", f"eu__acme__order__{(number - 10) % 20:04}")

        with running(streams, Path(folder) / "job.log", "--http", "127.0.0.1:0", command=COMMAND) as job:
            tell(scene)
            with repeated(step, 0.7), sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
                shot(browser, f"{job.address()}/", *SIZES[0], "light")  # the job begins to follow the updates
                time.sleep(_TRAFFIC_SECONDS)
                for name, view in reversed(VIEWS.items()):  # the overview shows the last minutes: without the start
                    save(picture(browser, f"{job.address()}/#/{view}"), name)
                tree = f"{job.address()}/#/{VIEWS['topics']}"
                save(Image.open(BytesIO(shot(browser, tree, *SIZES[0], "light"))).convert("RGB"), "page")
                browser.close()


if __name__ == "__main__":
    main()
