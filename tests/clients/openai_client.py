"""OpenAI's own library, as its users call it: sync, async, streaming, errors."""
import asyncio
import sys

import openai

QUESTION = [{"role": "system", "content": "You answer in one sentence."}, {"role": "user", "content": "What is a river?"}]


def sync(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    model = client.models.list().data[0].id
    chat = client.chat.completions.create(model=model, messages=QUESTION, max_completion_tokens=24, temperature=0,
                                          logprobs=True, top_logprobs=2)
    assert chat.choices[0].message.content and chat.usage.completion_tokens <= 24
    assert len(chat.choices[0].logprobs.content) == chat.usage.completion_tokens - (chat.choices[0].finish_reason == "stop")
    stream = client.chat.completions.create(model=model, messages=QUESTION, max_completion_tokens=24, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    said, usage = "", None
    for chunk in stream:
        said += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    assert said == chat.choices[0].message.content, (said, chat.choices[0].message.content)
    assert usage.completion_tokens == chat.usage.completion_tokens
    text = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, n=2, seed=3, stop=["\n\n"])
    assert len(text.choices) == 2
    same = [client.completions.create(model=model, prompt="The sea", max_tokens=12, seed=9, extra_body={"reproducible": True})
            .choices[0].text for _ in range(2)]
    assert same[0] == same[1]
    try:
        client.completions.create(model=model, prompt="a", temperature=-1)
        raise AssertionError("a negative temperature is taken")
    except openai.BadRequestError as error:
        assert error.code == "invalid_argument" and "temperature" in error.message
    wrong = {"temperature": -1, "top_p": 7, "n": 0, "extra_body": {"top_k": "many"}}
    try:
        client.completions.create(model=model, prompt="a", **wrong)
        raise AssertionError("four wrong fields are taken")
    except openai.BadRequestError as error:
        assert error.param == "n" and all(name in error.message for name in ("temperature", "top_p", "n = 0", "top_k")), error
    try:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * 9000}])
        raise AssertionError("more than the context is taken")
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded" and "maximum context length is 8192 tokens" in error.message, error
    try:
        client.completions.create(model="another", prompt="a")
        raise AssertionError("another model is taken")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found"
    assert client.models.retrieve(model).id == model
    assert client.models.retrieve("dummy").id == "dummy" and len(client.models.list().data) == 2
    assert client.completions.create(model="dummy", prompt="a", max_tokens=1).model == "dummy"
    with client.chat.completions.create(model=model, messages=QUESTION, stream=True, extra_body={"ignore_eos": True}) as left:
        next(iter(left))  # and goes away


def fields(url):
    """What programs of other servers and models send, and what of it counts."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    past = [{"role": "developer", "content": [{"type": "text", "text": "You answer in one sentence.",
                                               "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": "Hello", "name": "ann"},
            {"role": "assistant", "content": None, "refusal": None, "annotations": [], "id": "x", "reasoning_content": "hm"},
            QUESTION[1]]
    plain = dict(model="dummy", messages=past, max_tokens=8, temperature=0)
    sent = dict(plain, tools=[], tool_choice="auto", parallel_tool_calls=False, stop="", reasoning_effort="low", verbosity="low",
                prompt_cache_key="k", safety_identifier="s", prediction=None, modalities=["text"], response_format={"type": "text"},
                extra_body={"cache_prompt": True, "repeat_penalty": 1.0, "top_k": 40.0, "stop_token_ids": [],
                            "skip_special_tokens": True, "chat_template_kwargs": {"enable_thinking": False}, "colour": "red"})
    answers = [client.chat.completions.create(**each).choices[0].message.content for each in (plain, sent, sent)]
    assert answers[0] and answers[0] == answers[1] == answers[2], answers
    for name, value, param in (("tools", [{"type": "function", "function": {"name": "f"}}], "tools"),
                               ("response_format", {"type": "json_object"}, "response_format.type")):
        try:
            client.chat.completions.create(**plain, **{name: value})
            raise AssertionError(f"{name} is taken")
        except openai.BadRequestError as error:
            assert error.code == "unsupported" and error.param == param, error
    best = client.completions.create(model="dummy", prompt="The sea", max_tokens=4, n=2, best_of=4, seed=1, logprobs=0)
    means = [sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs) for choice in best.choices]
    assert len(means) == 2 and means[0] >= means[1] and best.usage.completion_tokens > 8, best
    prompt = client.completions.create(model="dummy", prompt="The sea is blue", max_tokens=0, echo=True, logprobs=1)
    assert prompt.choices[0].text == "The sea is blue" and prompt.choices[0].finish_reason == "length"
    assert len(prompt.choices[0].logprobs.token_logprobs) == prompt.usage.prompt_tokens and prompt.usage.completion_tokens == 0


async def together(url):
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none")
    model = (await client.models.list()).data[0].id

    async def ask(number):
        stream = await client.completions.create(model=model, prompt=f"Number {number} is", max_tokens=10, temperature=0,
                                                 stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])

    answers = await asyncio.gather(*(ask(number % 4) for number in range(12)))
    assert all(answers)


sync(sys.argv[1])
fields(sys.argv[1])
asyncio.run(together(sys.argv[1]))
print("openai: well")
