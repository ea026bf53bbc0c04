"""The page in a browser: chats, what interrupts them, input methods, a reader's place, a proxy's sub-path."""
import json
import shutil
import sys
import urllib.request

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import sub_path

STORY = "Write a very long story about a whale, with many chapters."

options = webdriver.ChromeOptions()
for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=700,420"):
    options.add_argument(argument)
options.binary_location = shutil.which("chromium")
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(service=webdriver.ChromeService(shutil.which("chromedriver")), options=options)
server = sys.argv[1]


def find(name):
    return browser.find_element(By.ID, name)


def until(holds, seconds=60):
    WebDriverWait(browser, seconds, poll_frequency=0.05).until(lambda _: holds())


def boxes(kind):
    return browser.find_elements(By.CSS_SELECTOR, f".message.{kind}")


def texts(kind):
    return [box.text for box in boxes(kind)]


def open_page(url=server + "/"):
    """A new page, which keeps what it asks for in window.sent."""
    browser.get(url)
    until(lambda: find("model").text not in ("", "…"))
    browser.execute_script("""
        window.sent = [];
        const real = window.fetch;
        window.fetch = (path, options) => {
          if (options.body) window.sent.push({path, body: JSON.parse(options.body)});
          return real(path, options);
        };""")


def sent():
    return [entry["body"] for entry in browser.execute_script("return window.sent")]


def send(text):
    find("text").send_keys(text + Keys.ENTER)


def idle():
    return find("send").is_displayed()


def answered(count=1):
    until(lambda: idle() and len(boxes("assistant")) == count and len(boxes("note")) == count)


def scroll():
    """Where the reader is, and how far above the end."""
    return browser.execute_script(
        "const c = document.getElementById('chat'); return [c.scrollTop, c.scrollHeight - c.scrollTop - c.clientHeight]")


def a_message_is_answered_and_an_answer_is_stopped():
    open_page()
    send("Say hello.")
    answered()
    assert boxes("assistant")[0].text and "per second" in boxes("note")[0].text, texts("note")
    send(STORY)
    until(lambda: len(boxes("assistant")) == 2 and boxes("assistant")[1].text)
    find("look").click()
    until(lambda: browser.find_elements(By.CSS_SELECTOR, "#requests tr") and "pages" in find("pages-text").text)
    assert browser.find_elements(By.CSS_SELECTOR, "#steps rect")
    find("look").click()
    if find("stop").is_displayed():
        find("stop").click()
    answered(2)
    find("look").click()
    until(lambda: find("counts").text.startswith("0 running, 0 waiting"))


def it_samples_as_the_model_asks():
    with urllib.request.urlopen(server + "/v1/models") as reply:
        wanted = json.load(reply)["data"][0]["default_sampling"]
    assert wanted["temperature"] == 0.2 and wanted["top_p"] == 0.9, wanted  # what the model's card says
    open_page()
    send("Say hello.")
    answered()
    assert {name: sent()[0].get(name) for name in wanted} == wanted, sent()[0]


def an_answer_stays_in_its_own_chat():
    open_page()
    send(STORY)
    until(lambda: boxes("assistant") and boxes("assistant")[0].text)
    find("new").click()
    assert not browser.find_elements(By.CSS_SELECTOR, ".message") and idle()
    send("Say hello.")
    answered()
    assert texts("user") == ["Say hello."], texts("user")
    assert sent()[1]["messages"] == [{"role": "user", "content": "Say hello."}], sent()[1]["messages"]
    send("Again.")
    answered(2)
    assert [message["role"] for message in sent()[2]["messages"]] == ["user", "assistant", "user"], sent()[2]["messages"]
    assert "chapter" not in sent()[2]["messages"][1]["content"].lower()


def an_input_method_keeps_its_enter():
    open_page()
    story = STORY + " にほん"
    find("text").send_keys(story)
    for event in ("{key: 'Enter', isComposing: true}", "{key: 'Enter', keyCode: 229}", "{key: 'Process', keyCode: 229}"):
        browser.execute_script(f"""
            document.getElementById('text').dispatchEvent(
                new KeyboardEvent('keydown', Object.assign({{bubbles: true, cancelable: true}}, {event})))""")
    assert not boxes("user") and not sent() and find("text").get_attribute("value") == story
    find("text").send_keys(Keys.ENTER)
    until(lambda: texts("user") == [story] and boxes("assistant")[0].text)
    # Escape closes its list of candidates; the answer goes on.
    browser.execute_script("""
        document.getElementById('text').dispatchEvent(
            new KeyboardEvent('keydown', {bubbles: true, key: 'Escape', isComposing: true}))""")
    length = len(boxes("assistant")[0].text)
    until(lambda: len(boxes("assistant")[0].text) > length)
    assert "stopped" not in texts("note")
    find("text").send_keys(Keys.ESCAPE)
    until(idle)


def a_reader_stays_where_he_reads():
    open_page()
    send(STORY)
    until(lambda: boxes("assistant") and scroll()[0] > 100)
    assert scroll()[1] < 32, scroll()  # it follows the end
    browser.execute_script("document.getElementById('chat').scrollTop = 10")
    length = len(boxes("assistant")[0].text)
    until(lambda: len(boxes("assistant")[0].text) > length + 40)
    assert scroll()[0] == 10, scroll()
    find("look").click()
    find("look").click()
    assert scroll()[0] == 10, scroll()  # the view inside does not move him either
    browser.execute_script("const c = document.getElementById('chat'); c.scrollTop = c.scrollHeight")
    length = len(boxes("assistant")[0].text)
    until(lambda: len(boxes("assistant")[0].text) > length + 40)
    assert scroll()[1] < 32, scroll()
    find("text").send_keys(Keys.ESCAPE)
    until(idle)


def a_refused_message_is_taken_back():
    open_page()
    long = "word " * 20000
    browser.execute_script("document.getElementById('text').value = arguments[0]", long)
    find("text").send_keys(Keys.ENTER)
    until(lambda: boxes("error"))
    assert "context" in boxes("error")[0].text and boxes("error")[0].get_attribute("role") == "alert", texts("error")
    assert not boxes("user") and not boxes("assistant") and idle()
    assert find("text").get_attribute("value").strip() == long.strip()
    find("text").clear()
    send("Say hello.")
    answered()
    assert sent()[1]["messages"] == [{"role": "user", "content": "Say hello."}]


def a_proxy_shows_it_in_a_folder():
    with sub_path.proxy(server) as url:
        for place in (url + "/", url):
            open_page(place)
            assert "SmolLM2" in find("model").text, (place, find("model").text)
            send("Say hello.")
            answered()
            find("look").click()
            until(lambda: "pages" in find("pages-text").text)


def keys_and_screen_readers_find_their_way():
    open_page()

    def named():
        for control in browser.find_elements(By.CSS_SELECTOR, "button, textarea, input, progress, svg[role], main"):
            assert control.accessible_name or not control.is_displayed(), control.get_attribute("outerHTML")

    named()
    assert browser.switch_to.active_element == find("text")
    send(STORY)
    until(lambda: boxes("assistant") and boxes("assistant")[0].text)
    assert boxes("assistant")[0].get_attribute("aria-busy") == "true"
    find("stop").send_keys(Keys.ENTER)
    until(idle)
    assert browser.switch_to.active_element == find("text")
    assert boxes("assistant")[0].get_attribute("aria-busy") is None and boxes("assistant")[0].accessible_name == "Answer"
    find("text").send_keys(Keys.ALT, "n", Keys.ALT)
    until(lambda: not browser.find_elements(By.CSS_SELECTOR, ".message"))
    find("text").send_keys(Keys.ALT, "i", Keys.ALT)
    until(lambda: find("inside").is_displayed())
    named()


try:
    for check in (a_message_is_answered_and_an_answer_is_stopped, it_samples_as_the_model_asks, an_answer_stays_in_its_own_chat,
                  an_input_method_keeps_its_enter, a_reader_stays_where_he_reads, a_refused_message_is_taken_back,
                  a_proxy_shows_it_in_a_folder, keys_and_screen_readers_find_their_way):
        if sys.argv[2:] in ([], [check.__name__]):
            check()
            print(f"page: {check.__name__.replace('_', ' ')}", flush=True)
    errors = [entry["message"] for entry in browser.get_log("browser")
              if entry["level"] == "SEVERE" and "favicon" not in entry["message"] and " 400 " not in entry["message"]]
    assert not errors, errors
finally:
    browser.quit()
print("page: well")
