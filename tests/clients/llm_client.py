"""The program `llm`: a chat, one that goes on, a completion, an overflow."""
import os
import pathlib
import subprocess
import sys
import tempfile


def ask(*arguments, text=None):
    command = [str(pathlib.Path(sys.executable).with_name("llm")), *arguments]
    return subprocess.run(command, input=text, text=True, capture_output=True, timeout=120)


def said(*arguments):
    reply = ask(*arguments)
    assert reply.returncode == 0 and reply.stdout.strip(), reply
    return reply.stdout


with tempfile.TemporaryDirectory() as folder:
    os.environ["LLM_USER_PATH"] = folder
    pathlib.Path(folder, "extra-openai-models.yaml").write_text(f"""
- {{model_id: weft, model_name: dummy, api_base: "{sys.argv[1]}/v1"}}
- {{model_id: weft-text, model_name: dummy, api_base: "{sys.argv[1]}/v1", completion: true}}
""")
    greedy = ["-o", "temperature", "0", "-o", "max_tokens", "12"]
    streamed = said("-m", "weft", *greedy, "What is a river?")
    assert said("-m", "weft", "--no-stream", *greedy, "What is a river?") == streamed
    said("-c", *greedy, "And a lake?")
    said("-m", "weft", "-s", "You answer in one sentence.", *greedy, "What is a hill?")
    said("-m", "weft-text", *greedy, "Once upon a time")
    reply = ask("-m", "weft", text="word " * 9000)
    assert reply.returncode != 0 and "maximum context length is 8192" in reply.stderr, reply
print("llm: well")
