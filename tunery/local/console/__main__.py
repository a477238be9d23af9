"""Install the scripts of the console: `python -m tunery.local.console`."""

from tunery.local.console import install

if __name__ == "__main__":
    print(install())
