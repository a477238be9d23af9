"""Install the browser of the tests: `python -m tests.browser`."""

from tests.browser import chromium_dir

if __name__ == "__main__":
    print(chromium_dir())
