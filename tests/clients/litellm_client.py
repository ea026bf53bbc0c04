"""litellm: chats and completions through both of its providers, an overflow that it has to recognise."""
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices
import litellm

litellm.suppress_debug_info = True

HELLO = [{"role": "system", "content": "You answer in one sentence."}, {"role": "user", "content": "What is a river?"}]


def check(url, provider):
    common = {"model": f"{provider}/dummy", "api_base": url + "/v1", "api_key": "none", "num_retries": 0}
    chat = litellm.completion(messages=HELLO, max_tokens=12, temperature=0, **common)
    assert chat.choices[0].message.content and chat.usage.completion_tokens <= 12, chat
    stream = litellm.completion(messages=HELLO, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True},
                                **common)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert said == chat.choices[0].message.content, (said, chat.choices[0].message.content)
    # What it passes on of conversations with other models.
    past = [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": None, "reasoning_content": "hm", "annotations": []}, *HELLO[1:]]
    again = litellm.completion(messages=past, max_tokens=4, reasoning_effort="low", allowed_openai_params=["reasoning_effort"], **common)
    assert again.choices[0].message.content is not None
    try:
        litellm.completion(messages=[{"role": "user", "content": "word " * 9000}], **common)
        raise AssertionError("more than the context is taken")
    except litellm.ContextWindowExceededError as error:
        assert "maximum context length is 8192" in str(error), error
    try:
        litellm.completion(messages=HELLO, temperature=-1, **common)
        raise AssertionError("a negative temperature is taken")
    except litellm.BadRequestError as error:
        assert "temperature" in str(error), error


check(sys.argv[1], "openai")
check(sys.argv[1], "hosted_vllm")
text = litellm.text_completion(model="text-completion-openai/dummy", api_base=sys.argv[1] + "/v1", api_key="none",
                               prompt="Once upon a time", max_tokens=8)
assert text.choices[0].text
print("litellm: well")
