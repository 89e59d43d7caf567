# SPDX-License-Identifier: Apache-2.0
"""check_page.py TALLY [FOLDER]: opens pages of `tally report` in Chromium and uses them: hover, zoom, another step, dark.
No error on the console, and no request leaves the page. With a folder, keeps the pages and pictures of them there."""
import os
import subprocess
import sys
import tempfile

import browser

HERE = os.path.dirname(os.path.abspath(__file__))


def make_page(tally, folder, name, *keys):
    """A page about a run that never happened."""
    base = os.path.join(folder, name)
    subprocess.run([sys.executable, "-B", os.path.join(HERE, "make_trace.py"), base, *keys], check=True)
    files = sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.startswith(name + ".") and f[-1].isdigit())
    subprocess.run([tally, "report", *files, "-o", base + ".html"], check=True, stdout=subprocess.DEVNULL)
    return base + ".html"


def middle_of_bucket(page, bucket):
    """The position of a bucket of rank 0 on the screen."""
    return page.value("""(() => { const box = $("spans").getBoundingClientRect();
        const d = timeline.drawn.find((s) => s.event.kind === "bucket" && s.event.bucket === %d);
        return [box.left + (d.x0 + d.x1) / 2, box.top + (d.y0 + d.y1) / 2]; })()""" % bucket)


def check_hover(page):
    """A bucket under the mouse tells its time; outside, nothing is told."""
    page.value("$('spans').scrollIntoView({block: 'center'})")
    page.mouse("Moved", *middle_of_bucket(page, 1))
    words = page.value("$('tip').hidden ? '' : $('tip').innerText")
    assert words.startswith("bucket 1\nrank 0, lane 0\n900 µs, from"), words
    assert page.value("timeline.hovered.bucket") == 1
    page.mouse("Moved", 5, 5)
    assert page.value("$('tip').hidden") is True


def check_zoom(page):
    """Buttons, wheel, keys and dragging change what is shown, within the step."""
    def span():
        return page.value("[timeline.from, timeline.to]")
    whole = span()
    assert whole[0] == 0 and whole[1] == page.value("data.steps[0].length")
    page.value("$('zoom-in').click()")
    assert abs(span()[1] - span()[0] - whole[1] / 2) < 2
    x, y = middle_of_bucket(page, 1)
    at = page.value("(() => { const d = timeline.drawn.find((s) => s.event.kind === 'bucket' && s.event.bucket === 1);"
                    "return d.event.begin + d.event.length / 2; })()")
    page.mouse("Wheel", x, y, deltaX=0, deltaY=-100, modifiers=2)
    low, high = span()
    assert high - low < whole[1] / 2 and low < at < high
    assert abs(middle_of_bucket(page, 1)[0] - x) < 3, "the wheel zooms at the mouse"
    page.mouse("Pressed", x, y, button="left", clickCount=1)
    page.mouse("Moved", x - 100, y, button="left", buttons=1)
    page.mouse("Released", x - 100, y, button="left", clickCount=1)
    assert span()[0] > low, "dragging moves"
    page.value("$('spans').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="0", text="0")
    assert span() == whole


def check_steps(page):
    """The other steps can be chosen, by button and in the chart."""
    first = page.value("$('choice').children[0].getAttribute('aria-pressed')")
    assert first == "true"
    page.value("$('choice').children[1].click()")
    assert page.value("timeline.chosen") == 1
    assert page.value("timeline.to") == page.value("data.steps[1].length") > page.value("data.steps[0].length")
    page.value("$('steps').scrollIntoView({block: 'center'})")
    x, y = page.value("(() => { const b = $('steps').getBoundingClientRect(); return [b.right - 15, b.top + 100]; })()")
    page.mouse("Moved", x, y)
    assert page.value("$('tip').innerText").startswith("step 20")
    page.click(x, y)
    assert page.value("data.steps[timeline.chosen].step") == 20


def check_theme(page):
    """The system's wish, and the button."""
    light, dark = "rgb(246, 247, 249)", "rgb(18, 21, 26)"

    def expect(colour):
        page.until(f"getComputedStyle(document.body).backgroundColor === '{colour}'")
    for scheme, colour in (("light", light), ("dark", dark)):
        page.prefer(scheme)
        expect(colour)
    page.value("$('theme').click()")
    expect(light)
    page.value("$('theme').click()")
    page.prefer("light")
    expect(dark)  # the button's choice stays


def check_grey(page):
    """Neighbours differ in grey too, in both themes."""
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.until(f"document.documentElement.dataset.theme === '{scheme}'")
        for names in (["compute", "exposed", "optimizer"], ["encode", "send", "waitrank", "reduce", "decode"]):
            greys = page.value("""%s.map((name) => { const hex = colour(name);
                const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
                return 0.3 * r + 0.59 * g + 0.11 * b; })""" % names)
            gaps = [abs(a - b) for a, b in zip(greys, greys[1:])]
            assert min(gaps) >= 35, (scheme, names, greys)


def check_narrow(page, width):
    """On a telephone only tables and the timeline scroll sideways, not the page."""
    page.resize(width, 900)
    page.until(f"innerWidth === {width}")
    assert page.value("document.documentElement.scrollWidth") <= width
    # The name of a setting is in one line.
    assert page.value("""[...document.querySelectorAll('#notes-table td:first-child')].every((key) => {
        const range = document.createRange();
        range.selectNodeContents(key);
        return range.getClientRects().length === 1; })""")


def check_names(page):
    """Names from files are texts."""
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.value("document.querySelector('h1').textContent").startswith("</script><img src=x onerror=alert(1)>")


def check_post(page):
    """The failure is told first, with the missing rank."""
    assert page.value("$('post').getBoundingClientRect().top < 200")
    assert page.value("document.querySelector('#post .missing').innerText").startswith("2\tmissing")
    assert page.value("timeline.rows.length") > 0


def check_bare(page):
    """A failure without events, as a full disk leaves it: no empty timeline."""
    assert page.value("document.querySelector('#post .missing').innerText").startswith("2\tmissing")
    assert page.value("$('timeline').hidden") is True


def check_choices(page):
    """The choices of auto: a row for each bucket, with the reason."""
    assert page.value("$('choices-note').innerText").startswith("int8 for 3 buckets, allreduce for 1 bucket, as of step 21.")
    assert page.value("$('choices-table').rows.length") == 5
    assert "the line is 0.94 Gbit/s" in page.value("$('choices-table').rows[1].innerText")


def main():
    """All pages."""
    if not browser.find():
        print("skipped: no Chromium; scripts/setup --ci installs it")
        return 77
    keep = sys.argv[2] if len(sys.argv) > 2 else None
    pages = [("plain", ["world=3", "worst=7"], [check_hover, check_zoom, check_steps, check_grey, check_theme]),
             ("straggler", ["world=4", "buckets=10", "steps=200", "straggler=2", "worst=40", "segment=131072"], []),
             ("odd", ["odd=1", "choices=1"], [check_names]),
             ("chosen", ["choices=1"], [check_choices]),
             ("hosts", ["world=8", "hosts=2", "only=-1"], []),
             ("failed", ["world=3", "failed=1"], [check_post]),
             ("bare", ["world=3", "failed=1", "steps=0", "events=0"], [check_bare])]
    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or temporary
        page = browser.Browser()
        try:
            for name, keys, checks in pages:
                path = make_page(sys.argv[1], folder, name, *keys)
                page.prefer("light")
                page.resize(1200, 900)
                page.open(path)
                for check in checks:
                    check(page)
                check_narrow(page, 390)
                page.resize(1200, 900)
                if keep:
                    page.open(path)
                    for scheme in ("light", "dark"):
                        page.prefer(scheme)
                        page.until(f"document.documentElement.dataset.theme === '{scheme}'")
                        page.picture(os.path.join(folder, f"{name}-{scheme}.png"))
                    page.prefer("light")
                    page.resize(400, 900)
                    page.picture(os.path.join(folder, f"{name}-narrow.png"))
                assert not page.errors, page.errors
                assert set(page.addresses) == {"file://" + path}, page.addresses
                page.addresses.clear()
        finally:
            page.close()
    return 0


sys.exit(main())
