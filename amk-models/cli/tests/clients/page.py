"""Uses the page of a server as a person does: page.py URL [FOLDER for screenshots]"""

import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

url = sys.argv[1].removesuffix("/v1")
folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
path = shutil.which("chromium") or shutil.which("google-chrome")

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
    context = browser.new_context(viewport={"width": 1100, "height": 760}, color_scheme="light")
    page = context.new_page()
    errors, elsewhere = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: None if request.url.startswith(url) else elsewhere.append(request.url))
    page.goto(url)
    expect(page.locator("#model")).to_contain_text("positions")

    # Labels name the fields; the keyboard is enough.
    page.get_by_text("Settings").click()
    page.get_by_label("Tokens of an answer at most").fill("40")
    page.get_by_label("Temperature").fill("0")
    page.get_by_text("Settings").click()
    page.get_by_label("Message", exact=True).fill("Name three rivers.")
    page.keyboard.press("Enter")
    answer = page.locator("#messages .assistant span").last
    expect(answer).not_to_be_empty(timeout=30000)
    expect(page.locator("#send")).to_be_enabled(timeout=60000)
    first = answer.inner_text()
    page.get_by_label("Message", exact=True).fill("Name three more.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#messages .assistant")).to_have_count(2, timeout=30000)
    expect(page.locator("#send")).to_be_enabled(timeout=60000)
    expect(page.locator("#totals")).to_contain_text(re.compile("[1-9] texts"), timeout=5000)
    assert first and page.locator("#error").is_hidden()
    for chart in ["texts", "pages", "rate", "step"]:
        assert page.locator(f"#{chart}-chart polyline").count() > 0, chart
    if folder:
        page.screenshot(path=folder / "page-light.png")
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=folder / "page-dark.png")

    # A stopped answer stays, and a mistake is told.
    page.get_by_text("Settings").click()
    page.get_by_label("Tokens of an answer at most").fill("2000")
    page.get_by_label("Message", exact=True).fill("Count to a thousand.")
    stop = "document.getElementById('stop').click()"
    page.evaluate(f"document.getElementById('form').requestSubmit(); setTimeout(() => {stop}, 100)")
    expect(page.locator("#messages .user")).to_have_count(3)
    expect(page.locator("#send")).to_be_enabled()
    page.get_by_label("Message", exact=True).fill("word " * 5000)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("shorten the prompt")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#messages li")).to_have_count(0)

    # A narrow screen has no sideways scrolling.
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    unexpected = [error for error in errors if "400" not in str(error)]
    assert not unexpected and not elsewhere, (unexpected, elsewhere)
    browser.close()
print("ok")
