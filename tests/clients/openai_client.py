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
    try:
        client.completions.create(model="another", prompt="a")
        raise AssertionError("another model is taken")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found"
    with client.chat.completions.create(model=model, messages=QUESTION, stream=True, extra_body={"ignore_eos": True}) as left:
        next(iter(left))  # and goes away


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
asyncio.run(together(sys.argv[1]))
print("openai: well")
