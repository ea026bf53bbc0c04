"""pydantic-ai's plain chat: an answer, one that goes on, a stream, an overflow that it has to recognise."""
import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def check(url):
    model = OpenAIChatModel("dummy", provider=OpenAIProvider(base_url=url + "/v1", api_key="none"))
    agent = Agent(model, instructions="You answer in one sentence.", model_settings={"max_tokens": 12, "temperature": 0})
    first = await agent.run("What is a river?")
    assert first.output
    assert (await agent.run("And a lake?", message_history=first.all_messages())).output
    async with agent.run_stream("What is a river?") as stream:
        said = "".join([text async for text in stream.stream_text(delta=True)])
    assert said == first.output, (said, first.output)
    settings = {"max_tokens": 4, "parallel_tool_calls": False, "seed": 3, "stop_sequences": ["\n\n"], "openai_reasoning_effort": "low",
                "openai_user": "x", "openai_prompt_cache_key": "k", "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    assert (await agent.run("What is a hill?", model_settings=settings)).output
    try:
        await agent.run("word " * 9000)
        raise AssertionError("more than the context is taken")
    except ModelContextWindowExceededError as error:
        assert "maximum context length is 8192" in str(error), error


asyncio.run(check(sys.argv[1]))
print("pydantic-ai: well")
