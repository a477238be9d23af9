"""A real browser: Chromium as npm carries it, without root, started by Playwright; and axe-core.

async with browser() as chromium: page = await chromium.new_page()
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright

from tunery.local.console import install_locked, npm
from tunery.local.paths import cache_dir

PINS: Final = Path(__file__).parent
#: Node's own zlib, as Python has no Brotli
UNPACK: Final = """
const fs = require("fs"), zlib = require("zlib"), [from, to] = process.argv.slice(1);
fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)));
"""
#: the package's own file names folders that exist on one host of functions alone
FONTS: Final = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{root}/fonts</dir><cachedir>{root}/font-cache</cachedir></fontconfig>
"""
UNPACK_S_MAX: Final = 120
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--no-zygote")


def chromium_dir() -> Path:
    """The unpacked browser; installed once for each version of package-lock.json."""
    digest = hashlib.sha256((PINS / "package-lock.json").read_bytes()).hexdigest()[:12]
    packages = cache_dir() / "tests" / f"chromium-{digest}"
    root = packages / "unpacked"
    packages.parent.mkdir(parents=True, exist_ok=True)
    with packages.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process makes it, those beside it wait
        if not packages.is_dir():
            install_locked(PINS, packages)
        if not root.is_dir():
            _unpack_all(packages / "node_modules/@sparticuz/chromium/bin", root)
    return root


def _unpack_all(packed: Path, root: Path) -> None:
    part = root.with_name("part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for file in packed.glob("*.br"):
        _unpack(file, part / file.stem)
    (part / "chromium").chmod(0o755)
    (part / "fonts.conf").write_text(FONTS.format(root=root))
    part.rename(root)


def axe_script() -> Path:
    """The script of axe-core, which finds what the guidelines for accessible pages forbid."""
    return chromium_dir().parent / "node_modules/axe-core/axe.min.js"


def _unpack(packed: Path, target: Path) -> None:
    node = npm()[0] if len(npm()) > 1 else "node"
    command = (node, "-e", UNPACK, str(packed), str(target))
    subprocess.run(command, check=True, timeout=UNPACK_S_MAX)
    if target.suffix == ".tar":
        with tarfile.open(target) as archive:
            archive.extractall(target.parent, filter="data")
        target.unlink()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    root = await asyncio.to_thread(chromium_dir)
    libraries = ":".join(str(path) for path in sorted(root.rglob("lib")) if path.is_dir())
    env: dict[str, str | float | bool] = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{root}"}
    env["FONTCONFIG_FILE"] = str(root / "fonts.conf")
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=root / "chromium", args=list(ARGUMENTS), env=env
        )
        try:
            yield chromium
        finally:
            await chromium.close()
