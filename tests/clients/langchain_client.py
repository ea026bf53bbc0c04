"""langchain-openai: a chat model and a completion model, called at once, in a stream and in a batch."""
import sys

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI

URL = sys.argv[1] + "/v1"
QUESTION = [SystemMessage("You answer in one sentence."), HumanMessage("What is a river?")]

chat = ChatOpenAI(model="dummy", base_url=URL, api_key="none", max_tokens=12, temperature=0, max_retries=0)
answer = chat.invoke(QUESTION)
assert answer.content and answer.usage_metadata["output_tokens"] <= 12, answer
assert "".join(chunk.content for chunk in chat.stream(QUESTION)) == answer.content
assert [each.content for each in chat.batch([QUESTION, QUESTION])] == [answer.content] * 2
assert chat.invoke([*QUESTION, answer, HumanMessage("And a lake?")]).content
assert chat.invoke([*QUESTION, AIMessage(""), HumanMessage("And a lake?")]).content
# Other models of its kind take these.
assert ChatOpenAI(model="dummy", base_url=URL, api_key="none", max_tokens=4, reasoning_effort="low", verbosity="low", logprobs=True,
                  top_logprobs=2, n=2, stream_usage=True, model_kwargs={"parallel_tool_calls": False}).invoke(QUESTION).content
try:
    chat.invoke("word " * 9000)
    raise AssertionError("more than the context is taken")
except ContextOverflowError as error:
    assert "maximum context length is 8192" in str(error), error

text = OpenAI(model="dummy", base_url=URL, api_key="none", max_tokens=8, temperature=0, max_retries=0)
said = text.invoke("Once upon a time")
assert said and "".join(text.stream("Once upon a time")) == said
assert OpenAI(model="dummy", base_url=URL, api_key="none", max_tokens=4, n=2, best_of=4).generate(["The sea", "A hill"]).generations[1]
print("langchain: well")
