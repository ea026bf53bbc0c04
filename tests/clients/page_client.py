"""The page in a browser: a message is answered, an answer is stopped, the view inside shows both."""
import shutil
import sys

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

options = webdriver.ChromeOptions()
for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
    options.add_argument(argument)
options.binary_location = shutil.which("chromium")
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(service=webdriver.ChromeService(shutil.which("chromedriver")), options=options)


def find(name):
    return browser.find_element(By.ID, name)


def until(holds, seconds=60):
    WebDriverWait(browser, seconds, poll_frequency=0.05).until(lambda _: holds())


def boxes(kind):
    return browser.find_elements(By.CSS_SELECTOR, f".message.{kind}")


def send(text):
    find("text").send_keys(text + Keys.ENTER)


try:
    browser.get(sys.argv[1] + "/")
    until(lambda: find("model").text not in ("", "…"))
    send("Say hello.")
    until(lambda: boxes("note"))
    assert boxes("assistant")[0].text and "per second" in boxes("note")[0].text
    send("Write a very long story about a whale, with many chapters.")
    until(lambda: len(boxes("assistant")) == 2 and boxes("assistant")[1].text)
    find("look").click()
    until(lambda: browser.find_elements(By.CSS_SELECTOR, "#requests tr") and "pages" in find("pages-text").text)
    assert browser.find_elements(By.CSS_SELECTOR, "#steps rect")
    find("look").click()
    if find("stop").is_displayed():
        find("stop").click()
    until(lambda: len(boxes("note")) == 2 and find("send").is_displayed())
    find("look").click()
    until(lambda: find("counts").text.startswith("0 running, 0 waiting"))
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]
    assert not errors, errors
finally:
    browser.quit()
print("page: well")
