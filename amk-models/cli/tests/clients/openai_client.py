"""Asks a server as programs with OpenAI's Python package do: openai_client.py URL"""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
model = client.models.list().data[0].id
chat = client.chat.completions
ask = [{"role": "user", "content": "Name a colour."}]
fast = {"model": model, "messages": ask, "max_completion_tokens": 12}
tool = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}


def plain_and_streamed_answers_are_the_same():
    plain = chat.create(**fast, temperature=0)
    text = plain.choices[0].message.content
    assert text and plain.usage.completion_tokens <= 12, plain
    chunks = list(chat.create(**fast, temperature=0, stream=True, stream_options={"include_usage": True}))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == text, (streamed, text)
    assert chunks[-1].usage.total_tokens == plain.usage.total_tokens
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def several_answers_have_seeds_of_their_own():
    both = chat.create(**fast, n=2, temperature=1.5, seed=7)
    again = chat.create(**fast, n=2, temperature=1.5, seed=7)
    texts = [choice.message.content for choice in both.choices]
    assert texts[0] != texts[1] and texts == [choice.message.content for choice in again.choices], texts


def a_stop_text_ends_the_answer():
    whole = chat.create(**fast, temperature=0).choices[0].message.content
    stop = whole[4:7]
    answer = chat.create(**fast, temperature=0, stop=[stop]).choices[0]
    assert answer.message.content == whole[: whole.index(stop)] and answer.finish_reason == "stop"


def logprobs_come_with_each_token():
    answer = chat.create(**fast, temperature=0, logprobs=True, top_logprobs=2)
    choice = answer.choices[0]
    assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in choice.logprobs.content)
    assert len(choice.logprobs.content) == answer.usage.completion_tokens


def an_answer_fits_a_schema():
    from pydantic import BaseModel, Field

    class Colour(BaseModel):
        name: str = Field(max_length=12)
        red: int = Field(ge=0, le=255)

    parsed = chat.parse(model=model, messages=ask, response_format=Colour, max_completion_tokens=600)
    assert 0 <= parsed.choices[0].message.parsed.red <= 255


def a_required_tool_is_called():
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    required = {"model": model, "messages": messages, "tools": [tool], "temperature": 0, "max_completion_tokens": 600}
    choice = chat.create(**required, tool_choice="required", parallel_tool_calls=False).choices[0]
    call = choice.message.tool_calls[0]
    assert choice.finish_reason == "tool_calls" and call.function.name == "get_weather", choice
    assert json.loads(call.function.arguments)["unit"] in ["C", "F"]
    named = {"type": "function", "function": {"name": "get_weather"}}
    with chat.stream(**required, tool_choice=named) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.message.tool_calls[0].function.arguments == call.function.arguments
    # The result goes back to the model.
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "3 degrees"}]
    assert chat.create(**{**required, "messages": messages, "max_completion_tokens": 8}).choices[0].message


def completions_go_on_from_texts():
    answer = client.completions.create(model=model, prompt=["One, two,", "A, b,"], max_tokens=4, temperature=0, logprobs=1)
    assert len(answer.choices) == 2 and len(answer.choices[0].logprobs.tokens) == 4
    chunks = client.completions.create(model=model, prompt="One, two,", max_tokens=4, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


def mistakes_have_their_kind_param_and_code():
    def refused(kind, param, code, **fields):
        try:
            chat.create(**{**fast, **fields})
        except kind as error:
            assert (error.param, error.code) == (param, code), error.body
        else:
            raise AssertionError(fields)

    refused(openai.NotFoundError, "model", "model_not_found", model="other")
    refused(openai.BadRequestError, "temperature", None, temperature=-1)
    refused(openai.BadRequestError, "messages", None, messages=[])
    refused(openai.BadRequestError, "response_format", None, response_format={"type": "xml"})
    long = [{"role": "user", "content": "word " * 9000}]
    refused(openai.BadRequestError, "messages", "context_length_exceeded", messages=long)


for name, test in list(globals().items()):
    if callable(test) and getattr(test, "__module__", None) == "__main__":
        test()
        print(f"{name.replace('_', ' ')}: ok", flush=True)
